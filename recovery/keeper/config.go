package keeper

import "time"

// Config is everything a keeper needs; the descriptors become its own.
type Config struct {
	Listener  int      // listening unix socket, bound under rendezvous's locks
	Log       int      // for sentences to people, and the worker's stderr; non-blocking
	Worker    string   // path of the worker's program, looked up at every start
	Env       []string // of the worker
	Version   string
	Namespace string
	Group     string
	Limits
}

// Limits are the keeper's times and sizes. Tests shorten them.
type Limits struct {
	PingAfter time.Duration // age of a request from which on the worker is pinged
	PingEvery time.Duration
	Hang      time.Duration // a ping unanswered for that long is a hang
	HangMax   time.Duration // Hang doubles with every hang, up to here
	Forgive   time.Duration // without a hang for that long, Hang is as it was
	Kill      time.Duration // from SIGQUIT (a dump of the stacks) to SIGKILL
	Hello     time.Duration // from a worker's start to its hello
	Broken    time.Duration // from the end of a worker's socket to its own end

	ShortLife     time.Duration // a worker that lives shorter is not restarted at once
	Backoff       time.Duration // first pause, doubling
	BackoffOwed   time.Duration // up to here while something is owed
	BackoffKilled time.Duration // up to here if, besides, somebody else killed the last one
	BackoffMax    time.Duration // up to here otherwise
	FreshWait     time.Duration // a Wait younger than this may not have reached a worker that left idle

	Unheard time.Duration // a keeper that no client has ever spoken to leaves after that: its start was killed before it could answer
	Promise time.Duration // for which another `start` may still count on this keeper
	Leave   time.Duration // for the last answers to be taken

	Pending int // bytes of unanswered requests per connection, then it is not read
	Answers int // bytes of untaken answers per connection, then the worker is not read
	Exits   int // exits kept that nobody watches
	Strikes int // faults of workers that a request may be part of
}

// DefaultLimits are the ones of a real keeper.
func DefaultLimits() Limits {
	return Limits{
		PingAfter: time.Second, PingEvery: time.Second,
		Hang: 3 * time.Second, HangMax: time.Minute, Forgive: time.Minute,
		Kill: time.Second, Hello: 10 * time.Second, Broken: time.Second,
		ShortLife: time.Second, Backoff: 10 * time.Millisecond,
		BackoffOwed: time.Second, BackoffKilled: 100 * time.Millisecond, BackoffMax: 30 * time.Second, FreshWait: 10 * time.Second,
		Unheard: time.Minute, Promise: 5 * time.Second, Leave: 10 * time.Second,
		Pending: 8 << 20, Answers: 256 << 10, Exits: 65536, Strikes: 2,
	}
}
