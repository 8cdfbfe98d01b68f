package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"perdure/chaos-tests/vm/plan"
)

// machine is a virtual machine that is run once.
type machine struct {
	kernel, initramfs string
	console           string // file that the kernel and the init write to
	kvm               bool   // the processor's own virtualisation, else emulation
}

// haveKVM reports whether this machine can run another at full speed.
func haveKVM() bool {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// slowness is the factor for all deadlines in the machine.
func (m machine) slowness() int {
	if m.kvm {
		return 1
	}
	return slow
}

// command is qemu with the machine's answers on its standard output.
func (m machine) command(ctx context.Context) *exec.Cmd {
	args := []string{
		"-machine", "q35", "-smp", "2", "-m", "3072", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", m.kernel, "-initrd", m.initramfs,
		// Panics end the machine; mitigations against strangers' programs only cost time here.
		"-append", "console=ttyS0 loglevel=4 panic=-1 mitigations=off cgroup_no_v1=all",
		"-chardev", "file,id=console,path=" + m.console, "-serial", "chardev:console",
		"-device", "virtio-serial-pci",
		"-chardev", "stdio,id=results,signal=off", "-device", "virtserialport,chardev=results,name=" + plan.Results,
		"-object", "rng-random,id=random,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=random",
	}
	if m.kvm {
		args = append(args, "-accel", "kvm", "-cpu", "host")
	} else {
		args = append(args, "-accel", "tcg,thread=multi", "-cpu", "max")
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// run starts the machine, copies its answers to out and waits for its end,
// which is forced when ctx ends.
func (m machine) run(ctx context.Context, out io.Writer) error {
	runtime.LockOSThread() // the kernel ties the parent death signal to the thread
	defer runtime.UnlockOSThread()
	cmd := m.command(ctx)
	// Never written to; at its end qemu would take the port for disconnected.
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer input.Close()
	answers, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the machine: %w", err)
	}
	err = relay(answers, out)
	if err := errors.Join(err, cmd.Wait(), ctx.Err()); err != nil {
		return fmt.Errorf("%w\nthe end of the machine's console:\n%s", err, m.lastWords())
	}
	return nil
}

// lastWords is the end of what the machine's console says.
func (m machine) lastWords() []byte {
	const limit = 8 << 10
	data, err := os.ReadFile(m.console)
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(data[max(0, len(data)-limit):])
}
