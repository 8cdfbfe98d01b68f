package options

import (
	"context"
	"unsafe"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/harness"
)

// cookie is a process's core scheduling cookie, 0 for none.
func cookie(pid int) (value uint64, err error) {
	err = unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, uintptr(pid), unix.PR_SCHED_CORE_SCOPE_THREAD, uintptr(unsafe.Pointer(&value)))
	return value, err
}

// taskError is how containerd says that a container has no task.
func taskError(ctx context.Context, c *harness.Container) error {
	_, err := c.Container.Task(ctx, nil)
	return err
}
