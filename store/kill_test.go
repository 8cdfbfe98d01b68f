package store

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"perdure/store/lifecycle"
)

// TestMain is also the process that is killed, and the one that is measured.
func TestMain(m *testing.M) {
	if path := os.Getenv("STORE_TEST_COMMIT"); path != "" {
		fmt.Fprintln(os.Stderr, commitForEver(path))
		os.Exit(1)
	}
	if path := os.Getenv("STORE_TEST_MEMORY"); path != "" {
		measure(path)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// commitForEver commits operations, with as many events as records, and says on stdout after each commit how
// many events were written. It ends by being killed.
func commitForEver(path string) error {
	j, err := Open(path, 0)
	if err != nil {
		return err
	}
	rows, err := j.Outbox()
	if err != nil {
		return err
	}
	written := uint64(len(rows))
	for n := 0; ; n++ {
		c := j.State()
		records := []lifecycle.Record{{Op: lifecycle.OpKill, Phase: lifecycle.Intent, Params: execParams}}
		if len(c.Execs) < 30 {
			records = append(records, lifecycle.Record{Op: lifecycle.OpExec, Exec: fmt.Sprint("e", c.Last), Phase: lifecycle.Done})
		}
		for seq := range c.Open {
			records = append(records, lifecycle.Record{Intent: seq, Phase: lifecycle.Done})
		}
		events := make([]Event, len(records))
		for i := range events {
			events[i] = Event{Topic: fmt.Sprint(c.Last + 1 + uint64(i)), Value: bytes.Repeat([]byte{byte(n)}, 100*n%700)}
		}
		if _, _, err := j.Commit(records, events); err != nil {
			return err
		}
		written += uint64(len(events))
		if _, err := os.Stdout.Write(binary.BigEndian.AppendUint64(nil, written)); err != nil {
			return err
		}
	}
}

// TestKilledInMidCommit kills a process that commits as fast as it can, 50 times, on the same journal. Every
// commit it acknowledged is there afterwards, and of the one that was under way all or nothing.
func TestKilledInMidCommit(t *testing.T) {
	j := createJournal(t)
	launch(t, j)
	path := j.path(t)
	var acknowledged uint64
	for round := range 50 {
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		acknowledged = commitUntilKilled(t, path, 1+round%13)
		var err error
		if j, err = Open(path, 0); err != nil {
			t.Fatalf("after kill %d: %v", round+1, err)
		}
		checkAfterKill(t, j, acknowledged)
	}
	t.Logf("%d events survived", acknowledged)
	checked(t, j)
}

// commitUntilKilled returns the last number the process acknowledged before it was killed.
func commitUntilKilled(t *testing.T, path string, commits int) uint64 {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STORE_TEST_COMMIT="+path)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acks := bufio.NewReader(out)
	var last uint64
	for n := 0; ; n++ {
		err := binary.Read(acks, binary.BigEndian, &last)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n == commits {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = cmd.Wait()
	if state, ok := cmd.ProcessState.Sys().(interface{ Signal() unix.Signal }); !ok || state.Signal() != unix.SIGKILL {
		t.Fatalf("it was not killed: %v: %s", err, stderr.Bytes())
	}
	return last
}

// checkAfterKill relies on Open having compared journal and state; an event is there for each record.
func checkAfterKill(t *testing.T, j *Journal, acknowledged uint64) {
	t.Helper()
	rows, err := j.Outbox()
	if err != nil {
		t.Fatal(err)
	}
	if n := uint64(len(rows)); n < acknowledged {
		t.Fatalf("%d events are left of %d that were acknowledged", n, acknowledged)
	}
	const launched = 4 // records without an event
	if last := j.State().Last; last != uint64(len(rows))+launched {
		t.Fatalf("%d records, %d events: a commit is half done", last, len(rows))
	}
	for i, r := range rows {
		if r.Seq != uint64(i)+1 || r.Topic != fmt.Sprint(i+1+launched) {
			t.Fatalf("row %d is %d, %q", i, r.Seq, r.Topic)
		}
	}
}
