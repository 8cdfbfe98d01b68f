package runtime

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Spec is the part of a bundle's config.json that perdure acts upon. The rest is the
// runtime's business and is not parsed: specs of hundreds of KiB are usual.
type Spec struct {
	Terminal            bool
	PrivatePIDNamespace bool // the container's processes all end with its init
	CgroupsPath         string
	Annotations         map[string]string
}

// ReadSpec reads config.json of a bundle.
func ReadSpec(bundle string) (*Spec, error) {
	path := filepath.Join(bundle, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("spec of bundle: %w", err)
	}
	var config struct {
		Process     struct{ Terminal bool }
		Annotations map[string]string
		Linux       struct {
			CgroupsPath string
			Namespaces  []struct{ Type, Path string }
		}
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("spec of bundle: %s: %w", path, err)
	}
	spec := &Spec{
		Terminal:    config.Process.Terminal,
		CgroupsPath: config.Linux.CgroupsPath,
		Annotations: config.Annotations,
	}
	for _, ns := range config.Linux.Namespaces {
		if ns.Type == "pid" && ns.Path == "" {
			spec.PrivatePIDNamespace = true
		}
	}
	return spec, nil
}
