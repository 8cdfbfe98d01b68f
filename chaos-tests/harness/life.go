package harness

import (
	"fmt"
	"slices"
)

// Life is what a client knows of a container, to compare its events with.
type Life struct {
	Container string
	Pid       int
	Exited    *uint32           // the init's code, nil while it runs
	Deleted   bool              // the task was deleted
	Execs     map[string]uint32 // code of each exec that was started and has ended
	Pids      map[string]int    // their pids
}

// CheckEvents compares the events of a container with its life: each one
// exactly once, those of a process in order, execs between the init's start and
// its exit, and nothing after the delete.
func CheckEvents(events []Event, life Life) error {
	at := map[string]int{} // position of each event
	for i, e := range events {
		if j, twice := at[e.String()]; twice {
			return fmt.Errorf("%s has %q twice: %+v and %+v", life.Container, e, events[j], e)
		}
		at[e.String()] = i
	}
	want := []string{"create", "start"}
	if life.Exited != nil {
		want = append(want, "exit")
	}
	if life.Deleted {
		want = append(want, "delete")
	}
	if err := inOrder(events, at, want); err != nil {
		return fmt.Errorf("%s: %w", life.Container, err)
	}
	count := len(want)
	for exec := range life.Execs {
		if err := checkExec(events, at, life, exec); err != nil {
			return fmt.Errorf("%s: %w", life.Container, err)
		}
		count += 3
	}
	if len(events) != count {
		return fmt.Errorf("%s has %d events, want %d: %v", life.Container, len(events), count, unexpected(events, life))
	}
	return checkInit(events, life)
}

// inOrder checks that all of want are there, one after the other.
func inOrder(events []Event, at map[string]int, want []string) error {
	last := -1
	for _, name := range want {
		i, ok := at[name]
		if !ok {
			return fmt.Errorf("event %q is missing in %v", name, names(events))
		}
		if i < last {
			return fmt.Errorf("event %q comes before %q in %v", name, events[last], names(events))
		}
		last = i
	}
	return nil
}

func checkExec(events []Event, at map[string]int, life Life, exec string) error {
	want := []string{"start", "exec-added " + exec, "exec-started " + exec, "exit " + exec}
	if life.Exited != nil {
		want = append(want, "exit")
	}
	if err := inOrder(events, at, want); err != nil {
		return err
	}
	started, exit := events[at[want[2]]], events[at[want[3]]]
	if code := life.Execs[exec]; exit.Status != code {
		return fmt.Errorf("exit of %s says %d, want %d", exec, exit.Status, code)
	}
	if pid := uint32(life.Pids[exec]); started.Pid != pid || exit.Pid != pid {
		return fmt.Errorf("exec %s has pid %d, its start says %d, its exit %d", exec, pid, started.Pid, exit.Pid)
	}
	return nil
}

func checkInit(events []Event, life Life) error {
	for _, e := range events {
		if e.Exec != "" || e.Name == "exec-added" {
			continue
		}
		if int(e.Pid) != life.Pid {
			return fmt.Errorf("%s: event %q has pid %d, the init is %d", life.Container, e, e.Pid, life.Pid)
		}
		if (e.Name == "exit" || e.Name == "delete") && e.Status != *life.Exited {
			return fmt.Errorf("%s: event %q says %d, the init ended with %d", life.Container, e, e.Status, *life.Exited)
		}
	}
	return nil
}

// unexpected lists the events of execs that the client does not know.
func unexpected(events []Event, life Life) []string {
	return names(slices.DeleteFunc(slices.Clone(events), func(e Event) bool {
		_, known := life.Execs[e.Exec]
		return known || e.Exec == ""
	}))
}
