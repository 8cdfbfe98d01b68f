package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"perdure/runtime"
)

const runtimeName = "io.containerd.perdure.v2"

// featuresType is how containerd names the OCI features document (typeurl's
// registration of runtime-spec types).
const featuresType = "types.containerd.io/opencontainers/runtime-spec/1/features/Features"

// featuresLimit bounds the runtime's answer. containerd waits for -info, and holds
// up a Create, for as long as it takes.
const featuresLimit = 3 * time.Second

// info answers containerd's -info: who the shim is and what its runtime can do. As
// with containerd's own shim a runtime that is not there is an error, and one that
// has no features command (crun before 1.8.6, youki) is none: containerd does
// without the answer.
func info([]string) error {
	given, o, err := givenOptions()
	if err != nil {
		return err
	}
	resp := &types.RuntimeInfo{
		Name:    runtimeName,
		Version: &types.RuntimeVersion{Version: version, Revision: revision()},
		Options: given,
	}
	runc := runtime.New(runtime.Config{Binary: o.Binary})
	if _, err := exec.LookPath(runc.Binary); err != nil {
		return fmt.Errorf("the runtime binary %q: %w: install it, or set the binary_name option", runc.Binary, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), featuresLimit)
	defer cancel()
	document, err := runc.Features(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v\n", err)
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
