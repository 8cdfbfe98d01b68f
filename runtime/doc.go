// Package runtime is the worker's hand on the world: it calls runc (or any OCI
// runtime with runc's command line), mounts root file systems, knows processes by
// pid and start time, and moves stdio.
//
// It promises that nothing of it dies with the worker that called it:
//
//   - a runtime call carries its intent in its environment (PERDURE_INTENT) and has
//     no parent death signal, so the next worker finds it and waits for its end;
//   - its files (pid file, log, process file, console socket) lie in the bundle under
//     the intent's name, so the next worker finds what it left;
//   - every descriptor whose closing would hurt a process is with the keeper before
//     the runtime is called, and bytes are moved by splice, or appended to a file by way
//     of a pipe that the keeper has too, so a worker killed at any instruction neither
//     loses nor repeats one;
//   - a logger lives as long as the process whose output it reads.
//
// It never writes the journal, never decides what an observation means, and is the
// only importer of go-runc.
package runtime
