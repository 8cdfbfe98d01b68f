package task

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/log"

	"perdure/internal/crash"
	"perdure/store"
)

// journalTimeout bounds the wait for a journal's lock. The last worker is dead when the
// keeper starts the next, so a lock that is held is a stranger's.
const journalTimeout = time.Second

// AdoptAll takes over every container that the keeper stores something of: a worker
// calls it before it serves. names are what the keeper has stored, oldest is the lowest
// request that still waits for an answer. A journal that cannot be used is said to
// whoever asks for its container; any other failure may pass, and is returned: the next
// worker tries again.
func (s *Service) AdoptAll(names []string, oldest uint64) error {
	for _, key := range keys(names) {
		err := s.adoptOne(key, oldest)
		switch {
		case err == nil:
		case errors.Is(err, store.ErrDamaged), errors.Is(err, store.ErrNewerSchema):
			log.L.WithError(err).WithField("container", key).Error("not re-adopted: its journal cannot be used")
			id, _ := identity(key)
			s.Broken(id, err)
		default:
			return fmt.Errorf("re-adopt %s: %w", key, err)
		}
	}
	s.Adopted()
	return nil
}

// identity takes a key apart: "c/ID@INSTANCE".
func identity(key string) (id, instance string) {
	name := strings.TrimPrefix(key, "c/")
	at := strings.LastIndexByte(name, '@')
	if at < 0 {
		return name, ""
	}
	return name[:at], name[at+1:]
}

// keys are the containers' prefixes among the stored names, "c/ID@INSTANCE".
func keys(names []string) []string {
	var keys []string
	for _, name := range names {
		if parts := strings.SplitN(name, "/", 3); len(parts) == 3 && parts[0] == "c" {
			keys = append(keys, parts[0]+"/"+parts[1])
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func (s *Service) adoptOne(key string, oldest uint64) error {
	crash.Here("adopt", "", crash.BeforeJournal)
	file, err := s.Keeper.Fetch(key + "/journal")
	if errors.Is(err, os.ErrNotExist) {
		return s.abandonOne(key, oldest)
	}
	if err != nil {
		return fmt.Errorf("fetch journal: %w", err)
	}
	defer file.Close()
	journal, err := store.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), journalTimeout)
	if err != nil {
		return err
	}
	crash.Here("adopt", "", crash.AfterJournal)
	return s.Adopt(journal, oldest)
}

// abandonOne ends what has no journal with the keeper: nothing was done for it.
func (s *Service) abandonOne(key string, oldest uint64) error {
	_, instance := identity(key)
	dir, err := s.Keeper.Fetch(key + "/bundle")
	if errors.Is(err, os.ErrNotExist) {
		dir, err = nil, nil // what was left of a create that is undone, or of a drop that was cut off
	}
	if err != nil {
		return fmt.Errorf("fetch bundle: %w", err)
	}
	if dir != nil {
		defer dir.Close()
	}
	return s.Abandon(key, dir, Owed(instance, oldest))
}
