package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
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
		group := spec.Annotations[annotation]
		if group == "" {
			continue
		}
		if err := checkGroup(group); err != nil {
			return "", fmt.Errorf("container %s: annotation %s: %w", id, annotation, err)
		}
		return group, nil
	}
	return id, nil
}

const maxGroup = 1024

// checkGroup refuses what cannot stand in a keeper's command line, in one line of a
// log or in a process list. Otherwise a group's name is the caller's affair, as it
// is with containerd's own shim: a socket's path has its hash alone.
func checkGroup(group string) error {
	switch {
	case len(group) > maxGroup:
		return fmt.Errorf("the group's name has %d bytes, at most %d are possible", len(group), maxGroup)
	case !utf8.ValidString(group) || strings.ContainsFunc(group, unicode.IsControl):
		return fmt.Errorf("the group's name %q is not all text", group)
	}
	return nil
}
