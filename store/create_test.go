package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"perdure/store/lifecycle"
)

func TestCreateKeepsAJournalThatCounts(t *testing.T) {
	j := createJournal(t)
	launch(t, j)
	dir := filepath.Dir(j.path(t))
	if _, err := Create(dir, testMeta()); !errors.Is(err, ErrLocked) {
		t.Errorf("beside its worker: %v; want ErrLocked", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dir, testMeta()); !errors.Is(err, ErrExists) {
		t.Errorf("%v; want ErrExists", err)
	}
	reopened, err := Open(filepath.Join(dir, Name), 0)
	if err != nil || reopened.State().Init.State != lifecycle.Running {
		t.Fatalf("the old journal: %v", err)
	}
	checked(t, reopened)
}

func TestCreateReplacesHistory(t *testing.T) {
	for name, c := range map[string]struct {
		used bool
		boot string
	}{"without records": {false, "b00t"}, "of another boot": {true, "before"}} {
		t.Run(name, func(t *testing.T) {
			m := testMeta()
			m.BootID = c.boot
			dir := t.TempDir()
			old, err := Create(dir, m)
			if err != nil {
				t.Fatal(err)
			}
			if c.used {
				launch(t, old)
			}
			if err := old.Close(); err != nil {
				t.Fatal(err)
			}
			j, err := Create(dir, testMeta())
			if err != nil {
				t.Fatal(err)
			}
			checked(t, j)
			if j.State().Last != 0 || j.Meta().BootID != "b00t" {
				t.Errorf("%+v, %+v", j.Meta(), j.State())
			}
			onlyJournal(t, dir)
		})
	}
}

// onlyJournal checks that no temporary file is left.
func onlyJournal(t *testing.T, dir string) {
	t.Helper()
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 || names[0].Name() != Name {
		t.Errorf("%v, %v", names, err)
	}
}

// TestCreateAtOnce: of many that create at once in one bundle, one gets a journal that is really there.
func TestCreateAtOnce(t *testing.T) {
	dir := t.TempDir()
	made := make(chan *Journal, 16)
	var all sync.WaitGroup
	for range cap(made) {
		all.Go(func() {
			j, err := Create(dir, testMeta())
			if err == nil {
				made <- j
			} else if !errors.Is(err, ErrExists) && !errors.Is(err, ErrLocked) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	close(made)
	var winner *Journal
	for j := range made {
		if winner != nil {
			t.Fatal("two have a journal")
		}
		winner = j
	}
	if winner == nil {
		t.Fatal("nobody has a journal")
	}
	checked(t, winner)
	if winner.path(t) != filepath.Join(dir, Name) {
		t.Error("it is not in the bundle")
	}
	onlyJournal(t, dir)
}

func TestCreateWithoutBundle(t *testing.T) {
	if _, err := Create(filepath.Join(t.TempDir(), "gone"), testMeta()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v; want that the bundle does not exist", err)
	}
}

func TestLock(t *testing.T) {
	j := createJournal(t)
	path := j.path(t)
	start := time.Now()
	if _, err := Open(path, 30*time.Millisecond); !errors.Is(err, ErrLocked) {
		t.Errorf("%v; want ErrLocked", err)
	}
	if waited := time.Since(start); waited > 5*time.Second {
		t.Errorf("waited %s", waited)
	}
	if _, err := Read(path, 0); !errors.Is(err, ErrLocked) {
		t.Errorf("reading: %v; want ErrLocked", err)
	}
	opened := make(chan error)
	go func() {
		k, err := Open(path, time.Minute)
		if err == nil {
			err = k.Close()
		}
		opened <- err
	}()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Errorf("one that waits: %v", err)
	}
}

// TestFileOutlivesBundle opens a journal by the keeper's descriptor, whose copy must not keep the lock.
func TestFileOutlivesBundle(t *testing.T) {
	j := createJournal(t)
	launch(t, j)
	f, err := j.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.RemoveAll(filepath.Dir(j.path(t))); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	k, err := Open(descriptor(f), 0)
	if err != nil {
		t.Fatal(err)
	}
	checked(t, k)
	do(t, k, lifecycle.OpKill, "", nil)
}

func TestReadLeavesAJournalAsItWas(t *testing.T) {
	j := createJournal(t)
	launch(t, j)
	path := j.path(t)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Read(path, 0)
	if err != nil || len(c.Records) != 4 || c.State.Init.State != lifecycle.Running || c.Meta.ID != "web" {
		t.Fatalf("%+v, %v", c, err)
	}
	after, err := os.ReadFile(path)
	if err != nil || string(before) != string(after) {
		t.Errorf("the file has changed: %v", err)
	}
	if _, err := Read(path+"x", 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v; want os.ErrNotExist", err)
	}
}

func TestSetAside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, Name)
	for _, want := range []string{".bad-1", ".bad-2"} {
		if err := os.WriteFile(path, []byte("zzz"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Create(dir, testMeta()); !errors.Is(err, ErrDamaged) {
			t.Errorf("over a damaged file: %v", err)
		}
		to, err := SetAside(path)
		if err != nil || !strings.HasSuffix(to, want) {
			t.Errorf("%s, %v", to, err)
		}
	}
	j, err := Create(dir, testMeta())
	if err != nil {
		t.Fatal(err)
	}
	checked(t, j)
}

// A full disk says nothing of the file; that it cannot be read does.
func TestAFullDiskIsNoDamage(t *testing.T) {
	if err := (&os.PathError{Op: "write", Path: Name, Err: unix.ENOSPC}); !short(err) {
		t.Errorf("%v is taken for damage", err)
	}
	if err := (&os.PathError{Op: "read", Path: Name, Err: unix.EIO}); short(err) {
		t.Errorf("%v is not taken for damage", err)
	}
	path := filepath.Join(t.TempDir(), Name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	readOnly, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openBolt(readOnly, true); !errors.Is(err, unix.EBADF) || !errors.Is(err, ErrDamaged) {
		t.Errorf("a file that cannot be written: %v", err)
	}
}
