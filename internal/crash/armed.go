package crash

import (
	"fmt"
	"strconv"
	"strings"
)

// $PERDURE_CRASH_DIR is a directory that a test and the processes share. Where
// it has a directory of the name of the process's group (see Scope) that one is
// meant instead, so that many groups of one daemon have points of their own.
//
//	armed           what is armed, one a line: <point> [kill|error|hold] [count]
//	<point>         left by a point that has fired, a line for each time
//	<point>.passed  a byte for each passage of a point that is armed
//	<point>.hold    the fifo at which a held process waits: it opens it for reading, after
//	                it has left its mark, and goes on when its writer has come and closed it
//	trace           where there is such a file each passage adds a line: <pid> <point>
//
// A line fires once, at the passage that count says (1, the first, where
// nothing is said), whichever process of the group that is in. A point that is
// to fire twice has two lines. The lines after a line "then" count, and fire,
// only when all those before it have fired; passages are counted anew, in
// <point>.passed.2 and so on.

// Action is what a point does that fires.
type Action string

// The actions.
const (
	Kill  Action = "kill"  // end the process with SIGKILL
	Error Action = "error" // have Fail return an error; only points that say so can
	Hold  Action = "hold"  // wait at the fifo
)

// Arming is a line of the file "armed".
type Arming struct {
	Point  string
	Action Action
	Count  int // the passage at which it fires, from 1
}

func (a Arming) String() string { return fmt.Sprintf("%s %s %d", a.Point, a.Action, a.Count) }

// Then is the line that parts what is armed from what is armed after it.
const Then = "then"

// Parse reads a line of the file "armed" that is not Then.
func Parse(line string) (Arming, error) {
	fields := strings.Fields(line)
	if len(fields) == 0 || len(fields) > 3 {
		return Arming{}, fmt.Errorf("armed crash point %q: want <point> [kill|error|hold] [count]", line)
	}
	a := Arming{fields[0], Kill, 1}
	for i, field := range fields[1:] {
		switch n, err := strconv.Atoi(field); {
		case err == nil && n > 0 && i == len(fields)-2:
			a.Count = n
		case i == 0 && (field == string(Kill) || field == string(Error) || field == string(Hold)):
			a.Action = Action(field)
		default:
			return Arming{}, fmt.Errorf("armed crash point %q: %q is neither an action nor a count from 1", line, field)
		}
	}
	return a, nil
}

// Hook, where a test sets it, is asked about every passage instead of the
// armed file: the error it returns is what Fail returns. Builds without crash
// points never call it (see Enabled).
var Hook func(point string) error
