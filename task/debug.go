package task

import (
	"github.com/containerd/log"

	"perdure/store/lifecycle"
)

// debugRecords writes the journal's new records to the log, for whoever has asked
// for that much.
func debugRecords(id string, records []lifecycle.Record) {
	if !log.L.Logger.IsLevelEnabled(log.DebugLevel) {
		return
	}
	for _, r := range records {
		entry := log.L.WithFields(log.Fields{"container": id, "seq": r.Seq})
		if r.Exec != "" {
			entry = entry.WithField("exec", r.Exec)
		}
		if r.Error != nil {
			entry = entry.WithField("error", r.Error.Message)
		}
		if r.Exit != nil {
			entry = entry.WithField("status", r.Exit.Status)
		}
		entry.Debugf("%s: %s", r.Op, r.Phase)
	}
}
