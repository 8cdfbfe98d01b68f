// Package simulation runs the real worker (packages task, store and recovery, journals in real files) in a simulated
// world, and kills it at every step. It needs no privilege, and no time: the world's clock is a synctest bubble's.
//
// The world is a keeper (descriptors, the queue of exits, unanswered requests that are given to the next worker with their
// numbers, a Shutdown that is remembered), a machine (containers, processes with pid and start time, cgroups with their OOM
// counter and notification, the runtime's calls, which go on to their end when their worker dies, and their files) and
// containerd (calls, events, the bundle that goes away with the answer to Delete). They keep the contracts of
// recovery/keeper and of package runtime.
//
// One thing happens at a time: whatever wants to happen next (a call of one of the worker's ports, a crash point, a step of
// a runtime call, an exit or a request given to the worker) waits for its turn, and the driver gives the next turn when
// everything stands still. So a case is repeated by its plan, and the worker is killed instead of any turn: at each named
// crash point, and between any two things that it does to the world. A killed worker has no hands: nothing it does
// afterwards reaches the world, and the journals are copied out of its reach at that moment.
//
// # What is exhaustive
//
// Each scenario is an operation in the state that it needs: create, start, exec (add, start, kill, delete), kill, kill all,
// pause, resume, update, checkpoint, restore, close-io, delete, reads, exits, OOMs, shutdown, creating again, and some side
// by side. Each is run in four variants: a pid namespace of its own or not, the worker faster than the world or slower.
// From the operation's first step until it is answered and nothing moves any more the worker is killed
//
//   - at every turn, in all variants;
//   - at every turn that leaves another world than the one before, with one of three things happening: the exit of an exec,
//     the exit of the init, an OOM; each before the operation, in the moment of the crash, while no worker lives, and
//     after the answer (two variants);
//   - at every turn, and once more at every later turn that leaves another world than the one before, recovery included
//     (one variant).
//
// A case is not followed further where a crash leaves exactly what another one has left before, journals and everything
// told so far included. Besides, each operation meets each fault: a runtime call that fails, one that is killed in the
// middle, events that are refused, and an error at each of the operation's steps that can fail (package crash).
//
// PERDURE_SIM=full goes further: up to three of the things in every order at every time, one of them beside two crashes,
// crashes beside each fault, all in four variants. PERDURE_SIM_ONLY="pause exits" does only some scenarios.
//
// TestRandom adds long random lives of two containers with random orders and crashes (PERDURE_SEED, PERDURE_SIM_LIVES).
//
// Every case is judged by package checker, and by what the world itself finds wrong: an answer that does not come, an error
// that nobody has caused, stdio that the keeper does not have when the runtime is called, anything left behind.
//
// # What is known not to hold
//
// The OOM of an init that ends before any worker has seen its cgroup (killed over the create or restore that brought it up)
// is not told: nothing but the dead process leads to the cgroup. Nor is one whose cgroup an orphaned delete of the runtime
// removes before the next worker looks. The simulation does not ask for them.
//
// # What is not simulated
//
// Output, terminals and loggers (package runtime's own tests and chaos-tests have them), a worker that rests, the keeper's
// death (chaos-tests/keeperdeath), poisonous requests and hangs, and cgroup version 2's notifications.
package simulation
