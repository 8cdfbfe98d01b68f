package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"perdure/runtime"
)

const runtimeName = "io.containerd.perdure.v2"

// featuresType is how containerd names the OCI features document (typeurl's
// registration of runtime-spec types).
const featuresType = "types.containerd.io/opencontainers/runtime-spec/1/features/Features"

// info answers containerd's -info: who the shim is and what its runtime can do.
func info([]string) error {
	in, err := readOptions()
	if err != nil {
		return fmt.Errorf("read options: %w", err)
	}
	resp := &types.RuntimeInfo{
		Name:    runtimeName,
		Version: &types.RuntimeVersion{Version: version, Revision: revision()},
	}
	var given anypb.Any
	var o options.Options
	if len(in) > 0 {
		if err := proto.Unmarshal(in, &given); err != nil {
			return fmt.Errorf("stdin is not an Any with runtime options: %w", err)
		}
		if given.MessageName() == o.ProtoReflect().Descriptor().FullName() {
			if err := proto.Unmarshal(given.Value, &o); err != nil {
				return fmt.Errorf("decode options %s: %w", given.TypeUrl, err)
			}
			resp.Options = &given
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	document, err := runtime.New(runtime.Config{Binary: o.BinaryName, Root: o.Root}).Features(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v\n", err) // older runtimes have no such command; containerd does without
	} else {
		resp.Features = &anypb.Any{TypeUrl: featuresType, Value: document}
	}
	out, err := proto.Marshal(resp)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}
