package daemon

import (
	"fmt"
	"strings"
)

// unneeded are the plugins a shim has nothing to do with. Some of them write
// outside the daemon's own directories.
var unneeded = []string{
	"io.containerd.cri.v1.images",
	"io.containerd.cri.v1.runtime",
	"io.containerd.grpc.v1.cri",
	"io.containerd.differ.v1.erofs",
	"io.containerd.image-verifier.v1.bindir",
	"io.containerd.internal.v1.opt",
	"io.containerd.internal.v1.tracing",
	"io.containerd.mount-handler.v1.erofs",
	"io.containerd.nri.v1.nri",
	"io.containerd.snapshotter.v1.blockfile",
	"io.containerd.snapshotter.v1.btrfs",
	"io.containerd.snapshotter.v1.devmapper",
	"io.containerd.snapshotter.v1.erofs",
	"io.containerd.snapshotter.v1.zfs",
	"io.containerd.tracing.processor.v1.otlp",
}

// config returns the text of config.toml for a daemon that listens for shims
// on ttrpc.
func (d *Daemon) config(ttrpc string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version = 3\nroot = %q\nstate = %q\ntemp = %q\n", d.path("root"), d.State(), d.path("tmp"))
	fmt.Fprintf(&b, "disabled_plugins = [\n")
	for _, name := range unneeded {
		fmt.Fprintf(&b, "  %q,\n", name)
	}
	fmt.Fprintf(&b, "]\n[grpc]\naddress = %q\n[ttrpc]\naddress = %q\n", d.Address(), ttrpc)
	fmt.Fprintf(&b, "[debug]\nlevel = %q\n", d.options.LogLevel)
	fmt.Fprintf(&b, "[plugins.'io.containerd.shim.v1.manager']\nsocket_dir = %q\n", d.Sockets())
	return b.String()
}
