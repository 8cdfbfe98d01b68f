package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Thaw lets the processes of a cgroup run again, whoever has frozen them. It is for
// SIGKILL to reach a paused container: with version 1 a frozen process does not die. A
// cgroup that is not frozen, has no freezer, or is gone is no error.
func (g Cgroup) Thaw() error {
	file, frozen, thawed := g.freezer()
	if file == "" {
		return nil
	}
	state, err := os.ReadFile(file)
	if err == nil && strings.Contains(frozen, strings.TrimSpace(string(state))) {
		err = os.WriteFile(file, []byte(thawed), 0)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("thaw: %w", err)
	}
	return nil
}

// freezer is the file that freezes, what it says then (FREEZING while some process
// does not stop yet), and what thaws.
func (g Cgroup) freezer() (file, frozen, thawed string) {
	if dir := g.dirs["freezer"]; dir != "" {
		return filepath.Join(dir, "freezer.state"), "FROZEN FREEZING", "THAWED"
	}
	if dir := g.dirs[unified]; dir != "" {
		return filepath.Join(dir, "cgroup.freeze"), "1", "0"
	}
	return "", "", ""
}

// EnableControllers switches on, in every cgroup above this one, the
// controllers that are there, as the stock shim does as root: what is not switched on
// above is not accounted below. The root is left to the host's init. Nothing is done for
// version 1.
func (g Cgroup) EnableControllers() error {
	if !g.version2() {
		return nil
	}
	mounts, err := cgroupMounts()
	if err != nil {
		return err
	}
	return enableControllers(mounts[unified].point, g.dirs[unified])
}

// enableControllers goes from below top down to the parent of dir. A level that refuses
// some (one with processes of its own takes only threaded ones) does not keep the rest from
// being tried; each is written alone, because one refusal refuses the whole line.
func enableControllers(top, dir string) error {
	below, err := filepath.Rel(top, filepath.Dir(dir))
	if err != nil {
		return fmt.Errorf("enable controllers above %s: %w", dir, err)
	}
	var errs []error
	level := top
	for _, name := range strings.Split(below, "/") {
		if name == "." || name == ".." {
			break
		}
		level = filepath.Join(level, name)
		errs = append(errs, enableAll(level))
	}
	return errors.Join(errs...)
}

func enableAll(dir string) error {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "cgroup.subtree_control")
	on, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	enabled := map[string]bool{}
	for _, controller := range strings.Fields(string(on)) {
		enabled[controller] = true
	}
	var errs []error
	for _, controller := range strings.Fields(string(available)) {
		if enabled[controller] {
			continue
		}
		if err := os.WriteFile(file, []byte("+"+controller), 0); err != nil {
			errs = append(errs, fmt.Errorf("enable controller %s: %w", controller, err))
		}
	}
	return errors.Join(errs...)
}
