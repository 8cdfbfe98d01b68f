package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"perdure/store/lifecycle"
)

func descriptor(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// journalFile is a closed journal with something of everything in it.
func journalFile(t testing.TB) string {
	t.Helper()
	j := createJournal(t)
	launch(t, j)
	for i := range 40 {
		id := fmt.Sprint("e", i)
		commit(t, j, lifecycle.Record{Op: lifecycle.OpExec, Exec: id, Phase: lifecycle.Done, Params: []byte(`"` + strings.Repeat("x", 900) + `"`)})
	}
	if _, _, err := j.Commit(nil, []Event{{Topic: "/tasks/create", Value: []byte("v")}, {Topic: "/tasks/start"}}); err != nil {
		t.Fatal(err)
	}
	path := j.path(t)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSentinels produces each way a file can be unusable.
func TestSentinels(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, path string)
		want   error
		says   string
	}{
		"empty":      {func(t *testing.T, p string) { truncate(t, p, 0) }, ErrDamaged, "is empty"},
		"one byte":   {func(t *testing.T, p string) { truncate(t, p, 1) }, ErrDamaged, "no meta page"},
		"two pages":  {func(t *testing.T, p string) { truncate(t, p, 8192) }, ErrDamaged, "cut short"},
		"half":       {func(t *testing.T, p string) { truncate(t, p, size(t, p)/2) }, ErrDamaged, "cut short"},
		"zeroed":     {func(t *testing.T, p string) { overwrite(t, p, 0, make([]byte, size(t, p))) }, ErrDamaged, "no meta page"},
		"tail zero":  {func(t *testing.T, p string) { overwrite(t, p, 8192, make([]byte, size(t, p)-8192)) }, ErrDamaged, "says it is page 0"},
		"text":       {func(t *testing.T, p string) { overwrite(t, p, 0, []byte(strings.Repeat("hello ", 4096))) }, ErrDamaged, "no meta page"},
		"directory":  {func(t *testing.T, p string) { replace(t, p, func() error { return os.Mkdir(p, 0o700) }) }, unix.EISDIR, ""},
		"fifo":       {func(t *testing.T, p string) { replace(t, p, func() error { return unix.Mkfifo(p, 0o600) }) }, ErrDamaged, "regular"},
		"no file":    {func(t *testing.T, p string) { replace(t, p, func() error { return nil }) }, os.ErrNotExist, ""},
		"page sizes": {meta(1, 8, 8192), ErrDamaged, "pages have 8192 bytes"},
		"page size":  {meta(0, 8, 0), ErrDamaged, "pages have 0 bytes"},
		"root":       {meta(both, 16, 1<<20), ErrDamaged, "outside the file"},
		"root loops": {meta(both, 16, 1), ErrDamaged, "used twice"},
		"free list":  {meta(both, 32, 1<<20), ErrDamaged, "outside the file"},
		"pages":      {meta(both, 40, 1<<20), ErrDamaged, "cut short"},
		"foreign":    {foreignFile, ErrForeign, "not a journal of perdure"},
		"other free": {noFreelistFile, ErrForeign, "not a journal of perdure"},
		"newer":      {edit(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keySchema, []byte{schema + 1}) }), ErrNewerSchema, "schema 2"},
		"schema 0":   {edit(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keySchema, []byte{0}) }), ErrForeign, ""},
		"no schema":  {edit(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Delete(keySchema) }), ErrForeign, ""},
		"no outbox":  {edit(func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketOutbox) }), ErrDamaged, "bucket outbox is missing"},
		"meta value": {edit(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyContainer, []byte("{")) }), ErrDamaged, "meta: key"},
		"bad record": {edit(func(tx *bbolt.Tx) error { return tx.Bucket(bucketJournal).Put(number(2), []byte("[]")) }), ErrDamaged, "journal: key"},
		"bad key":    {edit(func(tx *bbolt.Tx) error { return tx.Bucket(bucketJournal).Put([]byte("x"), []byte("{}")) }), ErrDamaged, "not a sequence"},
		"moved":      {edit(func(tx *bbolt.Tx) error { return tx.Bucket(bucketJournal).Put(number(2), []byte(`{"seq":3}`)) }), ErrDamaged, "has the key of"},
		"lost":       {edit(func(tx *bbolt.Tx) error { return tx.Bucket(bucketJournal).Delete(number(1)) }), ErrDamaged, "intent is not open"},
		"sequence":   {edit(func(tx *bbolt.Tx) error { return tx.Bucket(bucketJournal).SetSequence(1) }), ErrDamaged, "is after the last one"},
		"state":      {edit(func(tx *bbolt.Tx) error { return tx.Bucket(bucketState).Put(keyInit, []byte("{}")) }), ErrDamaged, "state: init is"},
		"no state":   {edit(func(tx *bbolt.Tx) error { return tx.Bucket(bucketState).Delete(keyInit) }), ErrDamaged, "state: no init"},
		"more state": {edit(func(tx *bbolt.Tx) error { return tx.Bucket(bucketState).Put(stateKey("z"), []byte("{}")) }), ErrDamaged, "state: exec/z is"},
		"counters": {edit(func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketState).Put(keyCounters, []byte(`{"deleted_execs":1}`))
		}), ErrDamaged, "counters"},
		"bad row":   {edit(func(tx *bbolt.Tx) error { return tx.Bucket(bucketOutbox).Put(number(1), []byte("x")) }), ErrDamaged, "outbox: key"},
		"row ahead": {edit(func(tx *bbolt.Tx) error { return tx.Bucket(bucketOutbox).SetSequence(1) }), ErrDamaged, "outbox: row 2"},
	} {
		t.Run(name, func(t *testing.T) {
			path := journalFile(t)
			c.damage(t, path)
			j, err := Open(path, 0)
			if err == nil {
				t.Fatal("it was opened", j.Close())
			}
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v; want %q and %q", err, c.want, c.says)
			}
			if errors.Is(err, ErrForeign) && !errors.Is(err, ErrDamaged) {
				t.Error("a foreign file has to count as damaged")
			}
			if _, again := Open(path, 0); again == nil || errors.Is(again, ErrLocked) {
				t.Errorf("the second time: %v", again)
			}
			if name != "fifo" && name != "directory" {
				if _, err := Read(path, 0); !errors.Is(err, c.want) {
					t.Errorf("Read: %v; want %q", err, c.want)
				}
			}
		})
	}
}

func size(t *testing.T, path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func truncate(t *testing.T, path string, n int64) {
	if err := os.Truncate(path, n); err != nil {
		t.Fatal(err)
	}
}

func overwrite(t testing.TB, path string, at int64, data []byte) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data, at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func replace(t *testing.T, path string, with func() error) {
	if err := errors.Join(os.Remove(path), with()); err != nil {
		t.Fatal(err)
	}
}

// edit changes a journal with bbolt, as no worker would.
func edit(f func(*bbolt.Tx) error) func(*testing.T, string) {
	return func(t *testing.T, path string) { boltUpdate(t, path, &bbolt.Options{}, f) }
}

func boltUpdate(t *testing.T, path string, o *bbolt.Options, f func(*bbolt.Tx) error) {
	db, err := bbolt.Open(path, 0o600, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(f), db.Close()); err != nil {
		t.Fatal(err)
	}
}

func foreignFile(t *testing.T, path string) {
	replace(t, path, func() error { return nil })
	boltUpdate(t, path, &bbolt.Options{}, func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("v1")); return err })
}

func noFreelistFile(t *testing.T, path string) {
	boltUpdate(t, path, &bbolt.Options{NoFreelistSync: true}, func(tx *bbolt.Tx) error { return nil })
}

const both = -1

// meta changes a number in one meta page, or both, and puts the checksum right.
func meta(page, at int, value uint64) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for p := range 2 {
			if p != page && page != both {
				continue
			}
			m := data[p*4096+pageHeader:]
			if order.PutUint32(m[at:], uint32(value)); at >= 16 {
				order.PutUint64(m[at:], value)
			}
			checksum(m)
		}
		overwrite(t, path, 0, data)
	}
}

func checksum(meta []byte) {
	sum := fnv.New64a()
	_, _ = sum.Write(meta[:metaSize-8])
	order.PutUint64(meta[metaSize-8:], sum.Sum64())
}

// TestOneMetaPageIsEnough: with the other one lost, the journal opens as it was, or as it was one commit ago.
func TestOneMetaPageIsEnough(t *testing.T) {
	for page := range int64(2) {
		path := journalFile(t)
		overwrite(t, path, page*4096, make([]byte, 4096))
		j, err := Open(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		checked(t, j)
		do(t, j, lifecycle.OpKill, "", nil)
	}
}

// TestPanicInsideBboltReleasesTheLock hands bbolt a file that verify would have refused.
func TestPanicInsideBboltReleasesTheLock(t *testing.T) {
	path := journalFile(t)
	v := pagesOf(t, path)
	overwrite(t, path, int64(v.free*v.pageSize)+8, []byte{leafPage}) // the free list is a leaf now
	f, err := openLocked(path, true, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openBolt(f, true); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "invalid freelist page") {
		t.Fatalf("%v; want bbolt's panic", err)
	}
	again, err := openLocked(path, true, 0)
	if err != nil {
		t.Fatalf("the lock was kept: %v", err)
	}
	if err := release(again); err != nil {
		t.Error(err)
	}
}

func pagesOf(t *testing.T, path string) verifier {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v := verifier{file: f, size: uint64(size(t, path)), seen: map[uint64]bool{}}
	if err := v.meta(); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestFileCutWhileOpen: reads of the mapping fault; the journal refuses everything, but the process lives.
func TestFileCutWhileOpen(t *testing.T) {
	j, err := Open(journalFile(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	before := j.State()
	truncate(t, j.path(t), 0)
	for range 2 {
		if _, _, err := j.Commit([]lifecycle.Record{{Op: lifecycle.OpKill, Phase: lifecycle.Intent}}, nil); !errors.Is(err, ErrDamaged) {
			t.Errorf("%v; want ErrDamaged", err)
		}
	}
	if _, err := j.Outbox(); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v; want ErrDamaged", err)
	}
	if j.State() != before {
		t.Error("the state in memory has changed")
	}
	path := j.path(t)
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	if f, err := openLocked(path, true, 0); err != nil {
		t.Errorf("the lock was kept: %v", err)
	} else if err := release(f); err != nil {
		t.Error(err)
	}
}

// TestVerifyFindsLoops lets a branch point to itself, which bbolt would follow for ever.
func TestVerifyFindsLoops(t *testing.T) {
	path := journalFile(t)
	v := pagesOf(t, path)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	loops := 0
	for id := uint64(2); id < v.pages; id++ {
		page := data[id*v.pageSize:]
		if order.Uint16(page[8:]) == branchPage {
			child := make([]byte, 8)
			binary.NativeEndian.PutUint64(child, id)
			overwrite(t, path, int64(id*v.pageSize)+pageHeader+8, child)
			loops++
		}
	}
	if _, err := Open(path, 0); loops == 0 || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "used twice") {
		t.Errorf("%d loops: %v", loops, err)
	}
}

// TestRandomDamage flips bytes all over: Open refuses, or what it opens can be written to.
func TestRandomDamage(t *testing.T) {
	path := journalFile(t)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	refused, target := 0, filepath.Join(t.TempDir(), Name)
	const rounds = 500
	for range rounds {
		bad := append([]byte(nil), good...)
		for range 1 + r.IntN(4) {
			at := r.IntN(len(bad)/64) * 64
			bad[at+r.IntN(64)] ^= 1 << r.IntN(8)
		}
		if r.IntN(4) == 0 { // headers and elements are where pointers are
			page := r.IntN(len(bad)/4096) * 4096
			bad[page+r.IntN(80)] = byte(r.Uint32())
		}
		if useDamaged(t, target, bad) {
			refused++
		}
	}
	if refused == 0 || refused == rounds {
		t.Errorf("%d of %d were refused", refused, rounds)
	}
}

// useDamaged opens a file of these bytes, and uses it if that works. It says whether it was refused.
func useDamaged(t testing.TB, path string, data []byte) bool {
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := Open(path, 0)
	if err != nil {
		if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewerSchema) {
			t.Errorf("%v; want ErrDamaged", err)
		}
		return true
	}
	defer func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}()
	intent := lifecycle.Record{Op: lifecycle.OpKill, Phase: lifecycle.Intent}
	if _, _, err := j.Commit([]lifecycle.Record{intent}, []Event{{Topic: "t"}}); err != nil && j.broken != nil {
		t.Errorf("verified, and bbolt stumbled: %v", err)
	}
	if err := j.Acknowledge(1); err != nil {
		t.Errorf("verified, and bbolt stumbled: %v", err)
	}
	return false
}

// FuzzOpen patches a good journal in two places, cuts it, and, so that the fuzzer gets past the meta pages,
// may put their checksums right again.
func FuzzOpen(f *testing.F) {
	good, err := os.ReadFile(journalFile(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint(0), []byte{}, uint(0), []byte{}, uint(0), false)
	f.Add(uint(16+32), []byte{7}, uint(4096+16+32), []byte{7}, uint(0), true)
	f.Add(uint(16+40), []byte{255}, uint(3*4096+8), []byte{1, 0, 0, 0}, uint(4096), true)
	f.Add(uint(5*4096+10), []byte{200}, uint(6*4096+16), []byte{1, 0, 0, 0, 8}, uint(0), false)
	path := filepath.Join(f.TempDir(), Name)
	f.Fuzz(func(t *testing.T, at uint, patch []byte, at2 uint, patch2 []byte, cut uint, sums bool) {
		data := append([]byte(nil), good...)
		copy(data[at%uint(len(data)):], patch)
		copy(data[at2%uint(len(data)):], patch2)
		for page := 0; sums && page < 2; page++ {
			checksum(data[page*4096+pageHeader:])
		}
		useDamaged(t, path, data[:uint(len(data))-cut%uint(len(data))])
	})
}
