package keeper_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"perdure/recovery/keeper/rendezvous"
)

// A start that is killed after it has left a keeper behind tells nobody of it: such a keeper does not stay for ever.
func TestKeeperThatNobodySpeaksToLeaves(t *testing.T) {
	k := run(t, "normal", `{"Unheard":50000000}`)
	if status := k.exited(); !status.Exited() || status.ExitStatus() != 0 {
		t.Errorf("keeper ended with %v", status)
	}
	for _, suffix := range []string{"", ".start", ".keeper"} {
		if _, err := os.Stat(k.socket + suffix); !os.IsNotExist(err) {
			t.Errorf("%s%s is still there: %v", k.socket, suffix, err)
		}
	}
}

// Nor does one that a start has looked at and was killed then.
func TestKeeperThatWasOnlyLookedAtLeaves(t *testing.T) {
	k := run(t, "normal", `{"Unheard":50000000,"Promise":300000000}`)
	look, err := net.Dial("unix", k.socket)
	must(t, err)
	must(t, look.Close())
	if status := k.exited(); !status.Exited() || status.ExitStatus() != 0 {
		t.Errorf("keeper ended with %v", status)
	}
}

// One whose start is still to answer, or whose client is there and has not spoken yet, stays; so does one that somebody
// has spoken to, without any connection.
func TestKeeperThatIsExpectedStays(t *testing.T) {
	dir := t.TempDir()
	lock, err := rendezvous.LockStart(filepath.Join(dir, "s"), 0) // as start has, until it has answered
	must(t, err)
	k := runIn(t, dir, "normal", `{"Unheard":1,"Promise":1}`)
	k.hello()
	silent, err := net.Dial("unix", k.socket)
	must(t, err)
	must(t, lock.Close())
	client := k.dial()
	k.ask(client, "Echo", "here")
	must(t, client.Close())
	must(t, silent.Close())
	k.ask(k.dial(), "Echo", "still here")
}
