package runtime

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// bench is an appender's descriptors, as the keeper has them.
type fileBench struct {
	t                 *testing.T
	path              string
	file, stage, mark *os.File
}

func newFileBench(t *testing.T, dir, before string) *fileBench {
	t.Helper()
	b := &fileBench{t: t, path: filepath.Join(dir, "log")}
	must(t, os.WriteFile(b.path, []byte(before), 0o600))
	var regular bool
	var err error
	b.file, regular, err = openLog(b.path)
	must(t, err)
	if !regular {
		t.Fatal("a file is said not to be one")
	}
	b.stage, err = newStage()
	must(t, err)
	b.mark, err = newMark()
	must(t, err)
	t.Cleanup(func() { closeAll(b.file, b.stage, b.mark) })
	b.worker().close()
	return b
}

// worker is the next one, which has finished what the last was killed in.
func (b *fileBench) worker() *appender {
	b.t.Helper()
	a, err := newAppender(b.file, b.stage, b.mark)
	must(b.t, err)
	must(b.t, a.settle())
	return a
}

func (b *fileBench) appendAsOthersDo(text string) {
	f, err := os.OpenFile(b.path, os.O_WRONLY|os.O_APPEND, 0)
	must(b.t, err)
	_, err = f.WriteString(text)
	must(b.t, err)
	must(b.t, f.Close())
}

// A worker can be killed after each step of a batch, and in the middle of a write or
// of emptying the stage. The bytes are in the file once, in their order.
func TestABatchIsWrittenOnceWhereverTheWorkerIsKilled(t *testing.T) {
	const size = 9000
	batch := make([]byte, size)
	fillPattern(batch, 0)
	lines := []byte(strings.Repeat("y\n", size/2))
	for name, step := range map[string]struct{ written, taken int }{
		"noted":                       {0, 0},
		"written":                     {size, 0},
		"written, taken in part":      {size, 5000},
		"written, taken":              {size, size},
		"written in part":             {4096, 0},
		"written in part, half taken": {4096, 1000},
		"written in part, taken":      {4096, 4096},
		"one byte written":            {1, 0},
	} {
		for meanwhile, do := range map[string]func(*fileBench){
			"nothing": func(*fileBench) {},
			"others append": func(b *fileBench) {
				b.appendAsOthersDo("of another")
			},
			"rotation by truncation": func(b *fileBench) { must(b.t, os.Truncate(b.path, 0)) },
			"rotation by renaming": func(b *fileBench) {
				must(b.t, os.Rename(b.path, b.path+".1"))
				b.path += ".1"
			},
		} {
			for kind, data := range map[string][]byte{"bytes": batch, "repeating lines": lines} {
				if kind == "repeating lines" && (meanwhile == "rotation by truncation" || meanwhile == "others append" && step.taken > 0) {
					continue // lines that are all the same do not tell which of them are in the file
				}
				t.Run(name+"/"+meanwhile+"/"+kind, func(t *testing.T) {
					b := newFileBench(t, t.TempDir(), strings.Repeat("y\n", 20000))
					_, err := b.stage.Write(data)
					must(t, err)
					a := b.worker()
					must(t, a.note(len(data)))
					do(b)
					want, err := os.ReadFile(b.path)
					must(t, err)
					want = append(want, data...)
					if step.written > 0 {
						n, err := unix.Write(int(b.file.Fd()), data[:step.written])
						if n != step.written {
							t.Fatal(n, err)
						}
					}
					_, err = b.stage.Read(make([]byte, step.taken))
					must(t, err)
					a.close() // killed

					a = b.worker()
					defer a.close()
					must(t, a.flush())
					if got, err := os.ReadFile(b.path); err != nil || !bytes.Equal(got, want) {
						t.Errorf("%d bytes are in the file (%v), want %d", len(got), err, len(want))
					}
				})
			}
		}
	}
}

// A full disk holds the process up, and loses nothing of what it has written.
func TestAFullDiskIsWaitedFor(t *testing.T) {
	requireRoot(t)
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=65536"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	b := newFileBench(t, dir, "")
	a := b.worker()
	defer a.close()
	all := make([]byte, 100_000)
	fillPattern(all, 0)
	done := make(chan error, 1)
	go func() {
		for rest := all; len(rest) > 0; rest = rest[min(len(rest), 50_000):] {
			if _, err := b.stage.Write(rest[:min(len(rest), 50_000)]); err != nil {
				done <- err
				return
			}
			if err := a.deliver(nil); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	var first []byte
	await(t, "the disk is full", func() (full bool) {
		var err error
		first, err = os.ReadFile(b.path)
		must(t, err)
		return len(first) == 65536
	})
	must(t, os.Truncate(b.path, 0))
	must(t, within(t, "the rest is written", done))
	second, err := os.ReadFile(b.path)
	must(t, err)
	if !bytes.Equal(append(first, second...), all) {
		t.Errorf("%d and %d bytes are not the %d that were written", len(first), len(second), len(all))
	}
}

func TestUnusableFiles(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mkfifo(dir+"/fifo", 0o600))
	must(t, os.WriteFile(dir+"/file", nil, 0o600))
	for path, says := range map[string]string{dir: "directory", dir + "/fifo": "without file://", dir + "/file/log": "not a directory"} {
		if _, err := OpenIO(newStore(t), "p", Stdio{Stdout: "file://" + path}, IOOptions{}); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Both streams and more than one process can write to one file, whose directory need
// not exist; devices are written to as well.
func TestFileOutput(t *testing.T) {
	c := newContainer(t, shell("echo out; echo err >&2; sleep 1000"))
	dir := t.TempDir()
	path := filepath.Join(dir, "new", "dir", "log")
	s := Stdio{Stdout: "file://" + path, Stderr: "file://" + path}
	c.run(s, IOOptions{Direct: true})
	await(t, "the init's output", func() bool {
		text, _ := os.ReadFile(path)
		return strings.Contains(string(text), "out\n") && strings.Contains(string(text), "err\n")
	})
	stdio, pid := c.exec("a", s, "/bin/sh", "-c", "echo exec")
	reap(t, pid)
	must(t, stdio.Drained(c.ctx))
	if text, err := os.ReadFile(path); err != nil || len(text) != 13 || !strings.HasSuffix(string(text), "exec\n") {
		t.Errorf("the file has %q: %v", text, err)
	}
	stdio, pid = c.exec("b", Stdio{Stdout: "file:///dev/null", Stderr: "file://" + dir + "/stderr"}, "/bin/sh", "-c", "echo exec; echo err >&2")
	reap(t, pid)
	must(t, stdio.Drained(c.ctx))
	if text, err := os.ReadFile(dir + "/stderr"); err != nil || string(text) != "err\n" {
		t.Errorf("the file has %q: %v", text, err)
	}
	await(t, "all of the execs to be let go", func() bool {
		return !slices.ContainsFunc(c.store.names(), func(name string) bool { return strings.HasPrefix(name, "exec") })
	})
	stdio, pid = c.exec("c", Stdio{Stdout: "file://" + dir + "/tty", Terminal: true}, "/bin/sh", "-c", "echo terminal")
	reap(t, pid)
	must(t, stdio.Drained(c.ctx))
	if text, err := os.ReadFile(dir + "/tty"); err != nil || string(text) != "terminal\r\n" {
		t.Errorf("the file has %q: %v", text, err)
	}
}

// An administrator may have made a log that nobody can rewrite (chattr +a).
func TestLogThatCanOnlyBeAppendedToIsUsed(t *testing.T) {
	requireRoot(t)
	const appendFlag = 0x20 // FS_APPEND_FL of linux/fs.h
	b := newFileBench(t, t.TempDir(), "before\n")
	attributes := func(change func(int) int) error {
		f, err := os.Open(b.path)
		must(t, err)
		defer f.Close()
		flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, change(flags))
	}
	if err := attributes(func(flags int) int { return flags | appendFlag }); err != nil {
		t.Skipf("the file system of %s has no such attribute: %v", b.path, err)
	}
	t.Cleanup(func() { must(t, attributes(func(flags int) int { return flags &^ appendFlag })) })
	a := b.worker()
	defer a.close()
	_, err := b.stage.Write([]byte("after\n"))
	must(t, err)
	must(t, a.flush())
	if text := read(t, b.path); text != "before\nafter\n" {
		t.Errorf("the log has %q", text)
	}
}
