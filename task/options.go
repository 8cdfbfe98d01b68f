package task

import (
	"fmt"

	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// runtimeOptions are the parts of the caller's options that are used, as they
// are journaled.
type runtimeOptions struct {
	Binary        string `json:"binary,omitempty"`
	Root          string `json:"root,omitempty"`
	SystemdCgroup bool   `json:"systemdCgroup,omitempty"`
	NoPivotRoot   bool   `json:"noPivotRoot,omitempty"`
	NoNewKeyring  bool   `json:"noNewKeyring,omitempty"`
	IoUID         int    `json:"ioUID,omitempty"`
	IoGID         int    `json:"ioGID,omitempty"`
	// CriuImagePath and CriuWorkPath are where a checkpoint goes, and what CRIU
	// itself writes, where the request does not say.
	CriuImagePath string `json:"criuImagePath,omitempty"`
	CriuWorkPath  string `json:"criuWorkPath,omitempty"`
}

// optionsOf reads the options of a create: none, containerd.runc.v1.Options,
// or an empty runtimeoptions.v1.Options, which CRI sends for a runtime type
// other than io.containerd.runc.v2.
func optionsOf(any *anypb.Any) (runtimeOptions, error) {
	if any == nil || any.TypeUrl == "" {
		return runtimeOptions{}, nil
	}
	switch any.MessageName() {
	case (&options.Options{}).ProtoReflect().Descriptor().FullName():
		o := &options.Options{}
		if err := proto.Unmarshal(any.Value, o); err != nil {
			return runtimeOptions{}, errorf(errdefs.ErrInvalidArgument, "decode options %s: %v", any.TypeUrl, err)
		}
		return runtimeOptions{
			Binary: o.BinaryName, Root: o.Root, SystemdCgroup: o.SystemdCgroup,
			NoPivotRoot: o.NoPivotRoot, NoNewKeyring: o.NoNewKeyring, IoUID: int(o.IoUid), IoGID: int(o.IoGid),
			CriuImagePath: o.CriuImagePath, CriuWorkPath: o.CriuWorkPath,
		}, nil
	case (&runtimeoptions.Options{}).ProtoReflect().Descriptor().FullName():
		o := &runtimeoptions.Options{}
		if err := proto.Unmarshal(any.Value, o); err != nil {
			return runtimeOptions{}, errorf(errdefs.ErrInvalidArgument, "decode options %s: %v", any.TypeUrl, err)
		}
		if o.ConfigPath != "" || len(o.ConfigBody) > 0 {
			return runtimeOptions{}, errorf(errdefs.ErrNotImplemented, "options %s: a configuration file (%q) is not read yet; use containerd.runc.v1.Options", any.TypeUrl, o.ConfigPath)
		}
		return runtimeOptions{}, nil
	}
	return runtimeOptions{}, errorf(errdefs.ErrInvalidArgument, "options of unknown type %q: want containerd.runc.v1.Options", fmt.Sprint(any.TypeUrl))
}
