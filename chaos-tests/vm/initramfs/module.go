package initramfs

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
)

// Modules puts kernel modules, by name, and those that they depend on below
// dir, from a tree of packed modules. It returns their files in the order in
// which they are to be loaded. Nothing is asked of depmod: a package that was
// only unpacked has no modules.dep.
func (a *Archive) Modules(dir, tree string, names ...string) []string {
	m := modules{archive: a, dir: dir, packed: map[string]string{}, loads: map[string]bool{}}
	a.Fail(filepath.WalkDir(tree, func(file string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(file), ".ko.xz"); ok {
			m.packed[canonical(name)] = file
		}
		return err
	}))
	for _, name := range names {
		a.Fail(m.add(canonical(name)))
	}
	return m.order
}

type modules struct {
	archive *Archive
	dir     string
	packed  map[string]string // name: file
	loads   map[string]bool
	order   []string
}

// canonical is a module's name as the kernel has it; files may have dashes.
func canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

func (m *modules) add(name string) error {
	if m.loads[name] {
		return nil
	}
	m.loads[name] = true
	file, ok := m.packed[name]
	if !ok {
		return fmt.Errorf("the kernel's package has no module %s", name)
	}
	module, err := exec.Command("xz", "-dc", file).Output()
	if err != nil {
		return fmt.Errorf("xz -dc %s: %w", file, err)
	}
	needed, err := depends(module)
	if err != nil {
		return fmt.Errorf("module %s: %w", name, err)
	}
	for _, other := range needed {
		if err := m.add(canonical(other)); err != nil {
			return err
		}
	}
	at := filepath.Join(m.dir, name+".ko")
	m.archive.Write(at, 0o644, string(module))
	m.order = append(m.order, at)
	return nil
}

// depends reads what a module says of itself: zero-terminated lines, one of
// which is "depends=" with names and commas.
func depends(module []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for line := range strings.SplitSeq(string(info), "\x00") {
		if names, ok := strings.CutPrefix(line, "depends="); ok && names != "" {
			return strings.Split(names, ","), nil
		}
	}
	return nil, nil
}
