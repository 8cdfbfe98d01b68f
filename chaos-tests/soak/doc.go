// Package soak has many clients work at random with containers while everything that may die does so at random: workers
// (kill -9, SIGSTOP), runtimes in the middle of a call, containerd, the receiver of events, the disk. What clients, events
// and the processes themselves tell of each life of a container is judged by package checker, while the run goes on; only
// lives that go on are kept.
//
// The plan is a function of the seed: what each life of each container does (plan.go), and when which kind of fault strikes
// (faults.go). Each container and each kind of fault has choices of its own, so that a failure can be narrowed down to some
// of them (narrow.go). Moments and victims are not part of it: they depend on what there is at the moment.
//
// Calls go through containerd's API as clients make them. Events are taken on their way from the shims to containerd
// (receiver.go): what containerd has taken and not passed on dies with it. Bundles are on a file system of their own, which
// can be filled. Everything is the run's own, so several go on side by side.
//
// What an error may be the result of is listed at excuse (call.go); there is nothing else. Where a fault has taken an answer
// the client looks at the state, and asks again, until it knows.
//
// The machine's clock jumps by less than half a second and back, where that is allowed: it is not this run's alone.
//
// What is left out: keepers are not killed, as that ends containers (package keeperdeath); CRIU is not used.
package soak
