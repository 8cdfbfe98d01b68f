package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/vm/initramfs"
	"perdure/chaos-tests/vm/plan"
)

// cacheInside is the machine's cache, in which the pinned containerd is.
const cacheInside = "/var-cache"

// modules are what the tests need of the kernel and Debian has not built in:
// overlayfs for snapshots, the rest for CRIU, which looks at all of it before it
// does anything.
var modules = []string{
	"overlay",
	"unix_diag", "inet_diag", "tcp_diag", "udp_diag", "raw_diag", "netlink_diag", "af_packet_diag", "tun", "veth", "nf_tables",
}

// build compiles the tests and writes the machine's first file system into
// dir. It returns the files of the kernel and of that file system.
func build(dir string, o options, tests []entry, slowness int) (kernel, root string, err error) {
	tree, err := daemon.Tree()
	if err != nil {
		return "", "", err
	}
	bin, err := daemon.Bin()
	if err != nil {
		return "", "", err
	}
	peers, err := daemon.Peers()
	if err != nil {
		return "", "", err
	}
	b := builder{tree: tree, dir: dir, cache: filepath.Dir(peers)}
	if err := b.compile(tests); err != nil {
		return "", "", err
	}
	if kernel, err = b.only(o.kernel + "/boot/vmlinuz-*"); err != nil {
		return "", "", err
	}
	root = filepath.Join(dir, "initramfs")
	f, err := os.Create(root)
	if err != nil {
		return "", "", err
	}
	a := initramfs.New(f)
	b.programs(a)
	a.Tree(path.Join(cacheInside, filepath.Base(peers)), peers)
	a.Tree(path.Join(plan.Tree, "bin"), bin)
	a.Add(path.Join(plan.Tree, "tools", "go.mod"), filepath.Join(tree, "tools", "go.mod"))
	a.Tree(path.Join(plan.Tree, "docs"), filepath.Join(tree, "docs")) // tests hold the shim to its documents
	todo := plan.Plan{Env: environment(slowness), Script: o.script}
	todo.Modules = a.Modules("/lib/modules", filepath.Join(b.cache, o.kernel, "lib", "modules"), modules...)
	for _, e := range tests {
		todo.Tests = append(todo.Tests, b.test(a, e, e.arguments(o, slowness)))
	}
	text, err := json.Marshal(todo)
	a.Write(plan.File, 0o644, string(text))
	return kernel, root, errors.Join(err, a.Close(), f.Close())
}

type builder struct{ tree, dir, cache string }

// compile builds what runs in the machine into dir: static, since the machine
// has only the libraries that some program of Debian's needs.
func (b *builder) compile(tests []entry) error {
	chaos := filepath.Join(b.tree, "chaos-tests")
	if err := goTool(chaos, "build", "-o", filepath.Join(b.dir, "init"), "./vm/guest"); err != nil {
		return err
	}
	if err := goTool(chaos, "build", "-o", filepath.Join(b.dir, "test2json"), "cmd/test2json"); err != nil {
		return err
	}
	for _, e := range tests {
		if err := goTool(chaos, "test", "-c", "-o", b.binary(e), "./"+e.dir); err != nil {
			return err
		}
	}
	return nil
}

// binary is the file of a package's tests.
func (b *builder) binary(e entry) string {
	return filepath.Join(b.dir, strings.ReplaceAll(e.dir, "/", "-")+".test")
}

func goTool(dir, command string, args ...string) error {
	cmd := exec.Command("go", append([]string{command, "-trimpath", "-ldflags=-s -w"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s %v: %w", command, args, err)
	}
	return nil
}

// only returns the one file in the cache that the pattern matches.
func (b *builder) only(pattern string) (string, error) {
	found, err := filepath.Glob(filepath.Join(b.cache, pattern))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%s in %s: %d files, want one: run scripts/setup vm", pattern, b.cache, len(found))
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// programs puts everything into the machine that is no test and not perdure's;
// CRIU runs tar for what is in a container's tmpfs, with options busybox has not.
func (b *builder) programs(a *initramfs.Archive) {
	a.Device("/dev/console", 5, 1)
	a.Add("/init", filepath.Join(b.dir, "init"))
	a.Add("/bin/test2json", filepath.Join(b.dir, "test2json"))
	criu := filepath.Join(b.cache, "criu")
	a.Program(path.Join(criuInside, "criu"), filepath.Join(criu, "usr", "sbin", "criu"), criu)
	// Else it wants iptables-restore, to keep packets away meanwhile.
	a.Write("/etc/criu/default.conf", 0o644, "network-lock nftables\n")
	for _, name := range []string{"busybox", "runc", "tar"} {
		file, err := exec.LookPath(name)
		if err != nil {
			a.Fail(fmt.Errorf("%w: run scripts/setup vm", err))
			return
		}
		a.Program("/usr/bin/"+name, file)
	}
	applets, err := exec.Command("busybox", "--list").Output()
	if err != nil {
		a.Fail(fmt.Errorf("busybox --list: %w", err))
	}
	for name := range strings.FieldsSeq(string(applets)) {
		a.Link("/bin/"+name, "/usr/bin/busybox")
	}
	a.Write("/etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\n")
	a.Write("/etc/group", 0o644, "root:x:0:\ntty:x:5:\n")
	a.Dir("/root")
}

// test puts one package's tests into the machine.
func (b *builder) test(a *initramfs.Archive, e entry, args []string) plan.Test {
	t := plan.Test{
		Package: "perdure/chaos-tests/" + e.dir,
		Dir:     path.Join(plan.Tree, "chaos-tests", e.dir),
		Binary:  path.Join("/bin", filepath.Base(b.binary(e))),
		Args:    args,
		Env:     e.env,
	}
	a.Dir(t.Dir)
	a.Add(t.Binary, b.binary(e))
	data := filepath.Join(b.tree, "chaos-tests", e.dir, "testdata")
	if _, err := os.Stat(data); err == nil {
		a.Tree(path.Join(t.Dir, "testdata"), data)
	}
	return t
}
