package soak

import (
	"fmt"
	"slices"
	"sync"
)

// faultKind is what is done to the processes under test.
type faultKind string

const (
	faultKill       faultKind = "kill"       // kill -9 of a worker
	faultStop       faultKind = "stop"       // SIGSTOP of a worker, until its keeper kills it or SIGCONT
	faultRuncKill   faultKind = "runc-kill"  // kill -9 of a runc in the middle of a call
	faultRuncStop   faultKind = "runc-stop"  // SIGSTOP and SIGCONT of one
	faultContainerd faultKind = "containerd" // kill -9, and a start up to 20 s later
	faultFreeze     faultKind = "freeze"     // SIGSTOP and SIGCONT of containerd
	faultReceiver   faultKind = "receiver"   // events are refused, not answered, or their answers lost
	faultDisk       faultKind = "disk"       // the file system of the bundles is full
	faultClock      faultKind = "clock"      // the machine's clock jumps, and back
)

// fault is one thing that was done.
type fault struct {
	Kind     faultKind
	Group    string // whose shim it hit, "" for everybody's
	Slot     string // whose runc
	Op       string // that it was at work for: create, start, kill ...
	From, To uint64 // ticks; To is 0 while it lasts
	Text     string
}

func (f *fault) String() string {
	return fmt.Sprintf("fault %s %s%s: %s", f.Kind, f.Group, f.Slot, f.Text)
}

// faultLog is what was done so far. It is small: a line for each fault.
type faultLog struct {
	clock *clock

	mu  sync.Mutex
	all []*fault
}

// begin notes a fault that lasts until the returned function is called.
func (l *faultLog) begin(f fault) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.From = l.clock.tick()
	l.all = append(l.all, &f)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		f.To = l.clock.tick()
	}
}

// during returns the faults of some kinds that touched a slot between two ticks; all kinds, if none is given.
func (l *faultLog) during(s slot, from, to uint64, kinds ...faultKind) []fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []fault
	for _, f := range l.all {
		concerns := (f.Group == "" || f.Group == s.Group) && (f.Slot == "" || f.Slot == s.ID)
		if concerns && f.From <= to && (f.To == 0 || f.To >= from) && (len(kinds) == 0 || slices.Contains(kinds, f.Kind)) {
			found = append(found, *f)
		}
	}
	return found
}

// counts returns how often each kind was done.
func (l *faultLog) counts() map[faultKind]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[faultKind]int{}
	for _, f := range l.all {
		n[f.Kind]++
	}
	return n
}
