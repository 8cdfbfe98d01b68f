// Package checker judges what was observed of containers: what clients were answered, which events arrived, and what
// really ran. It knows nothing of how that came about. It has no clock, does no I/O and imports no type of containerd's,
// so that the simulation, the real matrix and the soak are judged by the same rules.
//
// A recorder fills a [History]; [Check] returns everything that must not be. Each rule is a function of its own:
//
//	Identity      one pid and start time for a process, whoever tells it, and no second init of a life
//	Acknowledged  what was answered stays true until something that may have ended it began
//	Refused       a refusal has a reason in what was asked before
//	OneAnswer     a request that was answered again got the same answer
//	StartedOnce   user code ran at most once, and once where its start was answered
//	OneExit       a process ends once, as it truly ended, and everybody says the same of it
//	EventOrder    create < start < exec-added < exec-started < exec's exit < exit < delete, and OOMs before exits
//	Delivered     in a history that is over, nothing that was answered went without its event
//	Times         nothing ends before it starts
//	Output        every byte, once, in order
//	Agreement     State says what the runtime says, where nothing is under way
//	Left          nothing is left behind
//
// The rules never guess: where calls overlap, whatever order of them explains what was seen is accepted.
package checker
