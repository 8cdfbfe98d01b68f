package task

import (
	"fmt"
	"time"

	"perdure/store"
	"perdure/store/lifecycle"
)

// EndUnseen journals and tells the end of the execs that have ended without a keeper to
// see it: their status is unknown. Called by `delete` once nothing of the container runs;
// now is the time that is given for it. The init's own end `delete` answers with.
func EndUnseen(journal *store.Journal, now time.Time) error {
	v := &view{Container: journal.State()}
	for _, id := range v.execIDs() {
		p := v.Process(id)
		if p.State != lifecycle.Running {
			continue
		}
		p.Exit = &lifecycle.Exit{Status: lifecycle.UnknownStatus, At: p.Clamp(now), Source: lifecycle.Unknown}
		r := lifecycle.Record{Op: lifecycle.OpExit, Phase: lifecycle.Observed, Exec: id, Exit: p.Exit, Process: &p.Process, At: now}
		if _, _, err := journal.Commit([]lifecycle.Record{r}, []store.Event{exitEvent(journal.Meta().ID, id, p)}); err != nil {
			return fmt.Errorf("container %s: journal the end of exec %s: %w", journal.Meta().ID, id, err)
		}
	}
	return nil
}
