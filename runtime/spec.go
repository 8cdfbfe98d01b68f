package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Spec is the part of a bundle's config.json that perdure acts upon. The rest is the
// runtime's business and is not parsed: specs of hundreds of KiB are usual.
type Spec struct {
	PrivatePIDNamespace bool   // the container's processes all end with its init
	CgroupsPath         string // as the client has chosen it; may be empty
}

// ReadSpec reads config.json of a bundle.
func ReadSpec(bundle string) (*Spec, error) {
	path := filepath.Join(bundle, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("spec of bundle: %w", err)
	}
	var config struct {
		Linux struct {
			Namespaces  []struct{ Type, Path string }
			CgroupsPath string
		}
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("spec of bundle: %s: %w", path, err)
	}
	spec := &Spec{CgroupsPath: config.Linux.CgroupsPath}
	for _, ns := range config.Linux.Namespaces {
		if ns.Type == "pid" && ns.Path == "" {
			spec.PrivatePIDNamespace = true
		}
	}
	return spec, nil
}

// CheckProcess returns the OCI process of an exec, or what is wrong with it. Its
// terminal flag says nothing: the request's counts, as with the stock shim.
func CheckProcess(document []byte) ([]byte, error) {
	var process specs.Process
	switch err := json.Unmarshal(document, &process); {
	case len(document) == 0:
		return nil, errors.New("the request has no process")
	case err != nil:
		return nil, fmt.Errorf("the process is not an OCI process: %w", err)
	case len(process.Args) == 0:
		return nil, errors.New("the process has no arguments")
	}
	return document, nil
}
