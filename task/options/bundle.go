package options

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/api/types/runc/options"
)

// What a container's options leave in its bundle, for a `delete` that cannot have
// the journal. The names and contents are those of containerd's own shim, whose
// `delete` understands them as well.
const (
	optionsFile = "options.json"
	runtimeFile = "runtime"
)

// Save writes down what `delete` needs to know, before anything is done that
// would have to be undone. Options that are all defaults leave no file, also none
// of an earlier container's.
func (o Options) Save(bundle string) error {
	Remove(bundle)
	if o.Binary == "" && o.Root == "" && !o.SystemdCgroup {
		return nil
	}
	text, err := json.Marshal(&options.Options{BinaryName: o.Binary, Root: o.Root, SystemdCgroup: o.SystemdCgroup})
	if err == nil {
		err = replace(filepath.Join(bundle, optionsFile), text)
	}
	if err == nil && o.Binary != "" {
		err = replace(filepath.Join(bundle, runtimeFile), []byte(o.Binary))
	}
	if err != nil {
		return fmt.Errorf("write down the runtime's options: %w", err)
	}
	return nil
}

// replace has a file appear whole or not at all.
func replace(path string, text []byte) error {
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Load reads what Save, or containerd's own shim, has left; defaults where there
// is nothing.
func Load(bundle string) (Options, error) {
	path := filepath.Join(bundle, optionsFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return Options{}, nil
	}
	var o options.Options
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		return Options{}, fmt.Errorf("the runtime's options in %s: %w", path, err)
	}
	return Options{Binary: o.BinaryName, Root: o.Root, SystemdCgroup: o.SystemdCgroup}, nil
}

// Remove takes back what Save has left.
func Remove(bundle string) {
	for _, name := range []string{optionsFile, runtimeFile} {
		_ = os.Remove(filepath.Join(bundle, name))
		_ = os.Remove(filepath.Join(bundle, name+".new"))
	}
}
