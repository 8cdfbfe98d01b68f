package keeper_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// anonymous is the keeper's private memory in bytes.
func (k *kept) anonymous() int {
	k.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", k.pid))
	must(k.t, err)
	_, rest, _ := bytes.Cut(b, []byte("RssAnon:"))
	n, err := strconv.Atoi(strings.Fields(string(rest))[0])
	must(k.t, err)
	return n << 10
}

func TestMemoryAfterWork(t *testing.T) {
	k := run(t, "normal", "")
	client := k.dial()
	k.ask(client, "Echo", "x")
	fresh := k.anonymous()
	grown := func(what string, limit int) {
		t.Helper()
		n := k.anonymous() - fresh
		t.Logf("%s: %d kB more than the %d kB at first", what, n>>10, fresh>>10)
		if n > limit {
			t.Errorf("%s: %d kB more, the limit is %d kB", what, n>>10, limit>>10)
		}
	}
	spec := strings.Repeat("x", 2000)
	work := func(rounds int) {
		for range rounds {
			other := k.dial()
			for range 10 {
				k.ask(other, "Echo", spec)
			}
			other.Close()
		}
	}
	work(20)
	grown("after 20 connections of 10 requests", 512<<10)
	work(200)
	grown("after 200 more", 2<<20)
	k.ask(client, "Echo", strings.Repeat("x", 4<<20-2048))
	work(1)
	grown("after the longest frames", 2<<20)
}
