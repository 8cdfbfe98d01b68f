// Package task serves containerd's Task API (containerd.task.v2.Task and
// containerd.task.v3.Task) over the journal.
//
// It promises that nothing is answered or published before it is committed,
// that a request which the keeper replays to a new worker gets the answer the
// journal has, and that reads (State, Pids, Connect, Wait) never wait for a
// command. A container has one actor, which takes its decisions one after the
// other; effects (runc, mounts, draining) run outside it, beside each other
// where the lifecycle allows it.
//
// It keeps no truth in memory: every field of a container can be rebuilt from
// its journal and the keeper's descriptors. It never calls runc under a lock.
package task
