package store

import (
	"encoding/json"

	"go.etcd.io/bbolt"

	"perdure/store/lifecycle"
)

// change is one transaction.
type change struct {
	before, after *lifecycle.Container
	records       []lifecycle.Record
	events        []Event
	compacts      bool           // the two below are to be written
	garbage       []uint64       // records to remove
	base          lifecycle.Base // what is known of removed ones
	size          int            // bytes appended to the journal; set by write
}

func (c *change) write(tx *bbolt.Tx) error {
	c.size = 0
	steps := []func(*bbolt.Tx) error{c.writeRecords, c.writeState, c.writeEvents}
	if c.compacts {
		steps = append(steps, c.removeGarbage)
	}
	for _, step := range steps {
		if err := step(tx); err != nil {
			return err
		}
	}
	return nil
}

func (c *change) writeRecords(tx *bbolt.Tx) error {
	if len(c.records) == 0 {
		return nil
	}
	b := tx.Bucket(bucketJournal)
	b.FillPercent = 0.9 // keys only grow
	for _, r := range c.records {
		data, err := json.Marshal(r)
		if err != nil {
			return err
		}
		c.size += len(data)
		if err := b.Put(number(r.Seq), data); err != nil {
			return err
		}
	}
	return b.SetSequence(c.after.Last)
}

// writeState writes the processes the records were about, and the counters where they have moved.
func (c *change) writeState(tx *bbolt.Tx) error {
	b := tx.Bucket(bucketState)
	written := map[string]bool{}
	for _, r := range c.records {
		if written[r.Exec] || r.Phase == lifecycle.Intent || r.Phase == lifecycle.Launched {
			continue
		}
		written[r.Exec] = true
		key := stateKey(r.Exec)
		var err error
		if p := c.after.Process(r.Exec); r.Exec != "" && p.State == lifecycle.None {
			err = b.Delete(key)
		} else {
			err = put(b, key, p)
		}
		if err != nil {
			return err
		}
	}
	if countersOf(c.before) == countersOf(c.after) {
		return nil
	}
	return put(b, keyCounters, countersOf(c.after))
}

func (c *change) writeEvents(tx *bbolt.Tx) error {
	if len(c.events) == 0 {
		return nil
	}
	b := tx.Bucket(bucketOutbox)
	for _, e := range c.events {
		seq, err := b.NextSequence()
		if err != nil {
			return err
		}
		if err := put(b, number(seq), e); err != nil {
			return err
		}
	}
	return nil
}

func (c *change) removeGarbage(tx *bbolt.Tx) error {
	b := tx.Bucket(bucketJournal)
	for _, seq := range c.garbage {
		if err := b.Delete(number(seq)); err != nil {
			return err
		}
	}
	return put(tx.Bucket(bucketMeta), keyCompacted, c.base)
}
