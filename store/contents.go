package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"perdure/store/lifecycle"
)

// Contents is everything in a journal file.
type Contents struct {
	Meta    Meta
	Records []lifecycle.Record
	State   *lifecycle.Container // the fold of the records, which is also what the state bucket says
	Outbox  []Row

	base lifecycle.Base
}

// load reads and checks a whole file: schema, every value, Fold(journal) == state bucket by bucket, outbox.
func load(tx *bbolt.Tx) (*Contents, error) {
	if err := checkSchema(tx); err != nil {
		return nil, err
	}
	c := &Contents{}
	if err := c.loadMeta(tx.Bucket(bucketMeta)); err != nil {
		return nil, err
	}
	if err := c.loadJournal(tx.Bucket(bucketJournal)); err != nil {
		return nil, err
	}
	if err := c.compareState(tx.Bucket(bucketState)); err != nil {
		return nil, err
	}
	var err error
	c.Outbox, err = loadOutbox(tx.Bucket(bucketOutbox))
	return c, err
}

func (c *Contents) loadMeta(b *bbolt.Bucket) error {
	if err := decode(bucketMeta, keyContainer, b.Get(keyContainer), &c.Meta); err != nil {
		return err
	}
	if v := b.Get(keyCompacted); v != nil {
		return decode(bucketMeta, keyCompacted, v, &c.base)
	}
	return nil
}

func (c *Contents) loadJournal(b *bbolt.Bucket) error {
	err := b.ForEach(func(k, v []byte) error {
		var r lifecycle.Record
		seq, err := decodeNumbered(bucketJournal, k, v, &r)
		if err == nil && seq != r.Seq {
			err = fmt.Errorf("%w: journal: record %d has the key of %d", ErrDamaged, r.Seq, seq)
		}
		c.Records = append(c.Records, r)
		return err
	})
	if err != nil {
		return err
	}
	base := c.base
	base.Last = b.Sequence()
	if c.State, err = lifecycle.Resume(base, c.Records); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if c.State.Last != base.Last {
		return fmt.Errorf("%w: journal: record %d is after the last one, %d", ErrDamaged, c.State.Last, base.Last)
	}
	return nil
}

// compareState checks that the state bucket is the fold of the journal. Values are compared as they are read,
// so fields of a newer writer do not count.
func (c *Contents) compareState(b *bbolt.Bucket) error {
	want := map[string]lifecycle.ProcessState{string(keyInit): c.State.Init}
	for id, p := range c.State.Execs {
		want[execPrefix+id] = p
	}
	err := b.ForEach(func(k, v []byte) error {
		if string(k) == string(keyCounters) {
			var n counters
			if err := decode(bucketState, k, v, &n); err != nil {
				return err
			}
			if n != countersOf(c.State) {
				return fmt.Errorf("%w: state: counters are %+v, the journal says %+v", ErrDamaged, n, countersOf(c.State))
			}
			return nil
		}
		var have lifecycle.ProcessState
		if err := decode(bucketState, k, v, &have); err != nil {
			return err
		}
		if p, ok := want[string(k)]; !ok || !sameState(have, p) {
			return fmt.Errorf("%w: state: %s is %+v, the journal says %+v", ErrDamaged, k, have, p)
		}
		delete(want, string(k))
		return nil
	})
	if err == nil && len(want) > 0 {
		err = fmt.Errorf("%w: state: no %s", ErrDamaged, strings.Join(slices.Sorted(maps.Keys(want)), ", "))
	}
	return err
}

// sameState compares two states, one of which may not have been through JSON.
func sameState(a, b lifecycle.ProcessState) bool {
	if (a.Exit == nil) != (b.Exit == nil) || !a.Started.Equal(b.Started) {
		return false
	}
	if a.Exit != nil && (a.Exit.Status != b.Exit.Status || a.Exit.Source != b.Exit.Source || !a.Exit.At.Equal(b.Exit.At)) {
		return false
	}
	a.Exit, a.Started = b.Exit, b.Started
	return reflect.DeepEqual(a, b)
}

func loadOutbox(b *bbolt.Bucket) ([]Row, error) {
	var rows []Row
	err := b.ForEach(func(k, v []byte) error {
		var e Event
		seq, err := decodeNumbered(bucketOutbox, k, v, &e)
		rows = append(rows, Row{seq, e})
		return err
	})
	if n := len(rows); err == nil && n > 0 && rows[n-1].Seq > b.Sequence() {
		err = fmt.Errorf("%w: outbox: row %d is after the last one, %d", ErrDamaged, rows[n-1].Seq, b.Sequence())
	}
	return rows, err
}

// sameContainer compares the container in memory with the one a file folds to. Records are compared by their
// JSON: times of this process carry a monotonic clock and a location that are not in the file.
func sameContainer(a, b *lifecycle.Container) bool {
	if countersOf(a) != countersOf(b) || a.Last != b.Last || !sameState(a.Init, b.Init) {
		return false
	}
	return maps.EqualFunc(a.Execs, b.Execs, sameState) &&
		maps.EqualFunc(a.Open, b.Open, sameRecord) && maps.EqualFunc(a.Answers, b.Answers, sameRecord)
}

func sameRecord(a, b lifecycle.Record) bool {
	x, errx := json.Marshal(a)
	y, erry := json.Marshal(b)
	return errx == nil && erry == nil && string(x) == string(y)
}
