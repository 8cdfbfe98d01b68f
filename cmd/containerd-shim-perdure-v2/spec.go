package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// Annotations that put containers into one keeper, in order of precedence.
var groupAnnotations = []string{"io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id"}

// groupOf reads config.json in the working directory, the bundle, and returns
// the group the container belongs to: its own id where it says nothing.
func groupOf(id string) (string, error) {
	f, err := os.Open("config.json")
	if err != nil {
		return "", fmt.Errorf("container %s: the working directory is no bundle: %w", id, err)
	}
	defer f.Close()
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.NewDecoder(f).Decode(&spec); err != nil {
		return "", fmt.Errorf("container %s: config.json: %w", id, err)
	}
	for _, annotation := range groupAnnotations {
		if group := spec.Annotations[annotation]; group != "" {
			return group, nil
		}
	}
	return id, nil
}
