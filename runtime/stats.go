package runtime

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// Stats returns the cgroup's metrics in the message containerd knows for this host:
// *v1.Metrics or *v2.Metrics of containerd/cgroups. What the kernel or the
// configuration does not have is left out, as by the stock shim. It needs no process:
// a stopped container's cgroup tells what it has used until runc delete.
// errdefs.ErrNotFound when the cgroup is gone.
func (g Cgroup) Stats() (proto.Message, error) {
	var m proto.Message
	var f files
	if g.version2() {
		m = f.metrics2(g.dirs[unified])
	} else {
		m = f.metrics1(g.dirs)
	}
	if !g.exists() { // also where it went while it was read
		return nil, fmt.Errorf("cgroup %s: %w", g.dir("memory", "cpu"), errdefs.ErrNotFound)
	}
	if f.err != nil {
		return nil, fmt.Errorf("read metrics: %w", f.err)
	}
	return m, nil
}

// files reads the small files of cgroups and keeps the first thing that is wrong with
// one. A file that is not there reads as nothing: controllers, kernel versions and
// configurations differ in what they have.
type files struct{ err error }

// absent are the errors of a file that a controller, or its removal, does not offer.
var absent = []error{os.ErrNotExist, unix.ENODEV, unix.EOPNOTSUPP}

func (f *files) text(dir, name string) (string, bool) {
	if dir == "" {
		return "", false
	}
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err == nil {
		return string(text), true
	}
	for _, expected := range absent {
		if errors.Is(err, expected) {
			return "", false
		}
	}
	f.note(err)
	return "", false
}

func (f *files) note(err error) {
	if f.err == nil {
		f.err = err
	}
}

// number reads a file of one number; "max" is limitless, and a negative one is 0.
func (f *files) number(dir, name string, limitless uint64) uint64 {
	text, ok := f.text(dir, name)
	if !ok {
		return 0
	}
	return f.parse(dir, name, strings.TrimSpace(text), limitless)
}

func (f *files) parse(dir, name, text string, limitless uint64) uint64 {
	if text == "max" {
		return limitless
	}
	if strings.HasPrefix(text, "-") {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		f.note(fmt.Errorf("%s: %q is no number", filepath.Join(dir, name), text))
	}
	return n
}

// pairs reads a file of lines "KEY VALUE" into the variables there are for its keys.
func (f *files) pairs(dir, name string, into map[string]*uint64) bool {
	text, ok := f.text(dir, name)
	if !ok {
		return false
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if to := into[key]; to != nil {
			*to = f.parse(dir, name, value, 0)
		}
	}
	return true
}

// hugePageSizes are the sizes this kernel knows, as cgroups name them: 2MB, 1GB.
func hugePageSizes() []string {
	entries, err := os.ReadDir("/sys/kernel/mm/hugepages")
	if err != nil {
		return nil // no huge pages
	}
	var sizes []string
	for _, e := range entries {
		kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB"))
		switch {
		case err != nil:
		case kib >= 1<<20:
			sizes = append(sizes, strconv.Itoa(kib>>20)+"GB")
		case kib >= 1<<10:
			sizes = append(sizes, strconv.Itoa(kib>>10)+"MB")
		default:
			sizes = append(sizes, strconv.Itoa(kib)+"KB")
		}
	}
	return sizes
}

// rdma is a line of rdma.current or rdma.max: DEVICE hca_handle=N hca_object=N.
type rdma struct {
	device           string
	handles, objects uint32
}

func (f *files) rdma(dir, name string) []rdma {
	text, _ := f.text(dir, name)
	var all []rdma
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		r := rdma{device: fields[0]}
		for _, field := range fields[1:] {
			key, value, _ := strings.Cut(field, "=")
			n := uint32(min(f.parse(dir, name, value, math.MaxUint32), math.MaxUint32))
			switch key {
			case "hca_handle":
				r.handles = n
			case "hca_object":
				r.objects = n
			}
		}
		all = append(all, r)
	}
	return all
}
