package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"google.golang.org/protobuf/types/known/anypb"

	"perdure/store"
	"perdure/task"
)

// journal prints a container's journal as a timeline: from the file, or through
// the worker that has it open.
func journal(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: perdure journal BUNDLE")
	}
	bundle := args[0]
	contents, err := store.Read(filepath.Join(bundle, store.Name), lockTimeout)
	if errors.Is(err, store.ErrLocked) {
		contents, err = askWorker(bundle)
	}
	if err != nil {
		return err
	}
	return store.Timeline(os.Stdout, contents)
}

// askTimeout is how long a person waits for an answer.
const askTimeout = 30 * time.Second

func askWorker(bundle string) (*store.Contents, error) {
	id := filepath.Base(filepath.Clean(bundle))
	socket, err := socketOf(bundle)
	reply := &anypb.Any{}
	if err == nil {
		err = askShim(socket, task.AdminJournal, askTimeout, &api.StateRequest{ID: id}, reply)
	}
	if err != nil {
		return nil, fmt.Errorf("container %s: ask the worker for its journal: %w", id, err)
	}
	zip, err := gzip.NewReader(bytes.NewReader(reply.Value))
	if err != nil {
		return nil, fmt.Errorf("container %s: the worker's answer: %w", id, err)
	}
	contents := &store.Contents{}
	return contents, json.NewDecoder(zip).Decode(contents)
}
