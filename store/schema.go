package store

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"perdure/store/lifecycle"
)

// The tree. Numbers in keys are 8 bytes, big-endian, so that they sort; values are JSON with named fields,
// but for the schema version.
//
//	meta
//	├── schema       one raw byte, the version below
//	├── container    Meta; written once
//	└── compacted    lifecycle.Base: what is known of records that are gone
//	journal          (the bucket's sequence is the last record's)
//	└── <seq>        lifecycle.Record
//	state            the fold of the journal, processes only
//	├── init         lifecycle.ProcessState
//	├── exec/<id>    lifecycle.ProcessState
//	└── counters     {deleted_execs, forgotten}
//	outbox           (the bucket's sequence is the last row's)
//	└── <seq>        Event: not yet acknowledged
var (
	bucketMeta    = []byte("meta")
	bucketJournal = []byte("journal")
	bucketState   = []byte("state")
	bucketOutbox  = []byte("outbox")

	keySchema    = []byte("schema")
	keyContainer = []byte("container")
	keyCompacted = []byte("compacted")
	keyInit      = []byte("init")
	keyCounters  = []byte("counters")
)

// schema is raised when an older reader would misread what is written. New fields are no reason: readers skip
// what they do not know, and compaction only keeps or removes whole values.
const schema = 1

const execPrefix = "exec/"

// Meta is all that is needed to start a keeper for the container again, without an environment.
type Meta struct {
	BootID        string    `json:"boot_id"` // /proc/sys/kernel/random/boot_id
	Namespace     string    `json:"namespace"`
	ID            string    `json:"id"`
	Instance      string    `json:"instance"` // tells two containers of the same id apart
	Group         string    `json:"group"`
	Address       string    `json:"address"` // the keeper's socket
	Bundle        string    `json:"bundle"`
	TTRPCAddress  string    `json:"ttrpc_address,omitempty"` // containerd's; empty under CRI-O
	GRPCAddress   string    `json:"grpc_address,omitempty"`
	Runtime       string    `json:"runtime,omitempty"`
	Root          string    `json:"root,omitempty"`
	SystemdCgroup bool      `json:"systemd_cgroup,omitempty"`
	Writer        string    `json:"writer"` // version of the perdure that created the journal
	Created       time.Time `json:"created"`
}

// Event is a containerd event as it will be sent, byte for byte.
type Event struct {
	Topic   string    `json:"topic"`
	At      time.Time `json:"at"`
	TypeURL string    `json:"type_url"`
	Value   []byte    `json:"value"`
}

// Row is an event that is not yet acknowledged. Rows are sent in the order of Seq.
type Row struct {
	Seq uint64
	Event
}

// counters are the parts of the state that belong to no process.
type counters struct {
	DeletedExecs uint64 `json:"deleted_execs"`
	Forgotten    uint64 `json:"forgotten,omitempty"`
}

func countersOf(c *lifecycle.Container) counters { return counters{c.DeletedExecs, c.Forgotten} }

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func stateKey(exec string) []byte {
	if exec == "" {
		return keyInit
	}
	return []byte(execPrefix + exec)
}

// put writes a value as JSON.
func put(b *bbolt.Bucket, key []byte, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return b.Put(key, data)
}

// decode reads a value, or says that the file is damaged.
func decode(bucket, key, data []byte, value any) error {
	if err := json.Unmarshal(data, value); err != nil {
		return fmt.Errorf("%w: %s: key %q: %w", ErrDamaged, bucket, key, err)
	}
	return nil
}

// decodeNumbered reads a value whose key is a sequence number.
func decodeNumbered(bucket, key, data []byte, value any) (uint64, error) {
	if len(key) != 8 {
		return 0, fmt.Errorf("%w: %s: key %q is not a sequence number", ErrDamaged, bucket, key)
	}
	return binary.BigEndian.Uint64(key), decode(bucket, key, data, value)
}

// checkSchema judges the version byte before anything else of the file is interpreted.
func checkSchema(tx *bbolt.Tx) error {
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		return ErrForeign
	}
	switch v := meta.Get(keySchema); {
	case len(v) != 1 || v[0] == 0:
		return ErrForeign
	case v[0] > schema:
		return fmt.Errorf("%w: schema %d, this one reads up to %d", ErrNewerSchema, v[0], schema)
	}
	for _, name := range [][]byte{bucketJournal, bucketState, bucketOutbox} {
		if tx.Bucket(name) == nil {
			return fmt.Errorf("%w: bucket %s is missing", ErrDamaged, name)
		}
	}
	return nil
}
