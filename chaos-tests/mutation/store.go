package main

var storeMutants = []mutant{
	{
		name: "lost-outbox-row", file: "store/change.go", in: "func (c *change) writeEvents(",
		old: "for _, e := range c.events {", new: "for _, e := range c.events[1:] {",
		hurts: "the first event of a transaction is never sent: a client waits for it for ever",
		by:    "store TestOutboxKeepsOrderAndBytes",
	},
	{
		name: "outbox-row-number-twice", file: "store/change.go", in: "func (c *change) writeEvents(",
		old: "seq, err := b.NextSequence()", new: "seq, err := b.Sequence()+1, error(nil)",
		hurts: "an event overwrites one that was not sent yet",
		by:    "store TestOutboxKeepsOrderAndBytes",
	},
	{
		name: "failed-commit-is-believed", file: "store/journal.go", in: "func (j *Journal) Commit(",
		old: "if err := j.update(c.write); err != nil {", new: "if err := j.update(c.write); err != nil && j.db == nil {",
		hurts: "with a full disk an answer is given that no later worker knows of",
		by:    "store TestFullDisk",
	},
	{
		name: "state-before-commit", file: "store/journal.go", in: "func (j *Journal) Commit(",
		old: "c := change{before: before,", new: "j.state.Store(after)\n\tc := change{before: before,",
		hurts: "State tells what a failed commit then takes back",
		by:    "store TestFileCutWhileOpen",
	},
	{
		name: "wrong-row-acknowledged", file: "store/journal.go", in: "func (j *Journal) Acknowledge(",
		old: "b.Delete(number(n))", new: "b.Delete(number(n + 1))",
		hurts: "an event that was never sent is taken for delivered",
		by:    "store TestOutboxKeepsOrderAndBytes",
	},
	{
		name: "journal-lock-ignored", file: "store/lock.go", in: "func lock(",
		old: "return ErrLocked", new: "return nil",
		hurts: "two workers write one journal",
		by:    "store TestLock",
	},
	{
		name: "lock-of-a-replaced-file", file: "store/lock.go", in: "func openLocked(",
		old: "if err == nil && current {", new: "if err == nil && (current || !current) {",
		hurts: "who has waited for the lock writes into a journal that a new container has replaced",
		by:    "store TestWhoWaitedOpensTheFileThatIsThere",
	},
	{
		name: "lock-survives-a-panic", file: "store/open.go", in: "func openBolt(",
		old: "return nil, errors.Join(fault, release(f))", new: "return nil, errors.Join(fault, f.Close())",
		hurts: "a damaged journal can be set aside by nobody until the worker ends",
		by:    "store TestPanicInsideBboltReleasesTheLock",
	},
	{
		name: "boot-id-not-compared", file: "store/create.go", in: "func create(",
		old: "if old.State().Last > 0 && old.Meta().BootID == m.BootID {", new: "if old.State().Last > 0 {",
		hurts: "after a reboot an id cannot be created again",
		by:    "store TestCreateReplacesHistory",
	},
	{
		name: "living-journal-replaced", file: "store/create.go", in: "func create(",
		old: "if old.State().Last > 0 && old.Meta().BootID == m.BootID {", new: "if old.State().Last > 0 && old.Meta().BootID != m.BootID {",
		hurts: "a second create throws away the journal of a task",
		by:    "store TestCreateKeepsAJournalThatCounts",
	},
	{
		name: "create-overwrites", file: "store/create.go", in: "func appear(",
		old: "unix.RENAME_NOREPLACE)", new: "0)",
		hurts: "two creates at once both believe the journal is theirs",
		by:    "store TestCreateAtOnce",
	},
	{
		name: "newer-schema-guessed-at", file: "store/schema.go", in: "func checkSchema(",
		old: "case v[0] > schema:", new: "case v[0] > schema+1:",
		hurts: "a roll-back misreads the journals of the newer version",
		by:    "store TestSentinels/newer",
	},
	{
		name: "fold-not-compared", file: "store/contents.go", in: "func (c *Contents) compareState(",
		old: "!ok || !sameState(have, p)", new: "!ok",
		hurts: "a damaged journal is believed: the wrong pid, the wrong status",
		by:    "store TestEveryFieldOfAStateIsCompared",
	},
	{
		name: "exit-not-compared", file: "store/contents.go", in: "func sameState(",
		old: "a.Exit.Status != b.Exit.Status || ", new: "",
		hurts: "a status that is damaged in the file is told",
		by:    "store TestEveryFieldOfAStateIsCompared",
	},
	{
		name: "deleted-execs-forgotten", file: "store/compact.go", in: "func (x *compaction) plan(",
		old: "c.base.DeletedExecs += execs", new: "c.base.DeletedExecs = execs",
		hurts: "after the second compaction the journal contradicts itself and is refused as damaged",
		by:    "store TestSmallAfterTwentyThousandExecs",
	},
	{
		name: "compaction-forgets-its-base", file: "store/journal.go", in: "func (j *Journal) Commit(",
		old: "j.base = c.base", new: "j.base = lifecycle.Base{Forgotten: c.base.Forgotten}",
		hurts: "the same, when a compaction is followed by another in one worker's life",
		by:    "store TestSmallAfterTwentyThousandExecs",
	},
	{
		name: "sequence-used-twice", file: "store/change.go", in: "func (c *change) writeRecords(",
		old: "return b.SetSequence(c.after.Last)", new: "return nil",
		hurts: "an old intent's files and processes are taken for a new one's",
		by:    "store TestCommitAndReopen",
	},
	{
		name: "page-loop-followed", file: "store/pages.go", in: "func (v *verifier) page(",
		old: "if v.seen[i] {", new: "if v.seen[i] && i < 2 {",
		hurts: "a damaged page makes the worker spin or crash instead of saying so",
		by:    "store TestVerifyFindsLoops",
	},
	{
		name: "spool-descriptor-by-name", file: "store/lock.go", in: "func openPath(",
		old: `fmt.Sprintf("/proc/self/fd/%d", f.Fd())`, new: "f.Name()",
		hurts: "a journal whose bundle is gone cannot be given to the keeper: its last events are lost",
		by:    "store TestFileOutlivesBundle",
	},
	{
		name: "set-aside-overwrites", file: "store/create.go", in: "func SetAside(",
		old: "if errors.Is(err, fs.ErrExist) {\n\t\t\tcontinue", new: "if errors.Is(err, fs.ErrExist) {\n\t\t\treturn to, os.Rename(path, to)",
		hurts: "the evidence of the first damage is destroyed by the second",
		by:    "store TestSetAside",
	},
}
