package keeper_test

import (
	"fmt"
	"testing"
)

func TestForwarding(t *testing.T) {
	k := run(t, "normal", "")
	hello := k.hello()
	if hello.Text != "unix://"+k.socket {
		t.Errorf("address %q, want the socket %s", hello.Text, k.socket)
	}
	one, two := k.dial(), k.dial()
	for i := range 20 {
		for _, c := range []int{1, 2} {
			text := fmt.Sprintf("%d-%d", c, i)
			client := one
			if c == 2 {
				client = two
			}
			if got := k.ask(client, "Echo", text); got != text {
				t.Fatalf("Echo(%s) = %s", text, got)
			}
		}
	}
}
