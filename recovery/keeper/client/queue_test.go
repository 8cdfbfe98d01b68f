package client

import "testing"

// TestQueueKeepsTheOrder: exits and connections are told in the order in which they came, however slow the reader is.
func TestQueueKeepsTheOrder(t *testing.T) {
	q := newQueue[int]()
	defer q.close()
	for n := range 100 {
		q.put(n)
	}
	for n := range 100 {
		if got := <-q.out; got != n {
			t.Fatalf("number %d is %d", n, got)
		}
	}
}
