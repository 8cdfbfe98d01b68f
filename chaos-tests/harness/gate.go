package harness

import (
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Gates let tests say when processes in containers go on, without containerd.
type Gates struct {
	dir   string
	gates map[string]*os.File
}

// NewGates makes the gates called names.
func (h *Harness) NewGates(names ...string) (*Gates, error) {
	g := &Gates{dir: filepath.Join(h.Dir(), "gates"), gates: map[string]*os.File{}}
	h.t.Cleanup(g.close)
	if err := os.Mkdir(g.dir, 0o700); err != nil {
		return nil, err
	}
	for _, name := range names {
		path := filepath.Join(g.dir, name)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			return nil, err
		}
		// Both ends: so that nobody ever waits in an open.
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		g.gates[name] = f
	}
	return g, nil
}

func (g *Gates) close() {
	for _, f := range g.gates {
		f.Close()
	}
}

// Mount brings the gates into a container.
func (g *Gates) Mount() specs.Mount {
	return specs.Mount{Type: "bind", Source: g.dir, Destination: "/gates", Options: []string{"rbind", "rw"}}
}

// Await is shell code that waits until the gate is opened.
func (g *Gates) Await(name string) string { return "read go </gates/" + name + "; " }

// Open lets the one who waits at a gate pass, or the first who will.
func (g *Gates) Open(name string) error {
	_, err := g.gates[name].WriteString("\n")
	return err
}

// Path is where a gate is on the host, for hooks.
func (g *Gates) Path(name string) string { return filepath.Join(g.dir, name) }
