package initramfs

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
)

// libraries are where a machine's loader looks for libraries by itself.
var libraries = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}

// Program puts a program at path, with its loader and the libraries that it
// needs: the machine's own, else those below the unpacked packages in roots.
func (a *Archive) Program(at, from string, roots ...string) {
	a.Add(at, from)
	a.Fail(a.needs(from, roots, map[string]bool{}))
}

func (a *Archive) needs(file string, roots []string, done map[string]bool) error {
	f, err := elf.Open(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		loader := make([]byte, p.Filesz-1) // without the zero at its end
		if _, err := p.ReadAt(loader, 0); err != nil {
			return fmt.Errorf("loader of %s: %w", file, err)
		}
		a.Add(string(loader), string(loader))
	}
	names, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("libraries of %s: %w", file, err)
	}
	for _, name := range names {
		if done[name] {
			continue
		}
		done[name] = true
		found, err := find(name, roots)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		a.Add("/lib/x86_64-linux-gnu/"+name, found)
		if err := a.needs(found, roots, done); err != nil {
			return err
		}
	}
	return nil
}

func find(name string, roots []string) (string, error) {
	for _, root := range append([]string{"/"}, roots...) {
		for _, dir := range libraries {
			file := filepath.Join(root, dir, name)
			if _, err := os.Stat(file); err == nil {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("library %s is not on this machine, nor in %v", name, roots)
}
