// Package options reads what a caller can choose for a container besides its
// spec: containerd.runc.v1.Options, or the same choices, and two more, as a TOML
// document in runtimeoptions.v1.Options (see docs/options.md).
//
// It never falls back: options that cannot be read whole are an error, and so
// are those that name something unknown. Every error is the caller's to mend, is
// one line, and says where. It opens no file but the document's.
package options

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Options are the choices as they are journaled: the JSON names are part of the
// journal's format. The zero value is a caller that has chosen nothing.
type Options struct {
	Binary        string `json:"binary,omitempty"` // path, or name in $PATH
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
	// ShimCgroup is the cgroup that start puts the keeper into.
	ShimCgroup string `json:"shimCgroup,omitempty"`
	// LogLevel and LogPath are about the worker's own log.
	LogLevel string `json:"logLevel,omitempty"` // one of Levels
	LogPath  string `json:"logPath,omitempty"`
}

// Levels are the words for a log level, the most verbose one first (logrus').
var Levels = []string{"trace", "debug", "info", "warn", "error", "fatal", "panic"}

var (
	runcType    = (&options.Options{}).ProtoReflect().Descriptor().FullName()
	genericType = (&runtimeoptions.Options{}).ProtoReflect().Descriptor().FullName()
)

// Read reads options of either type; nil, and an Any without a type, are no
// options.
func Read(given *anypb.Any) (Options, error) {
	if given == nil || given.TypeUrl == "" {
		return Options{}, nil
	}
	var o Options
	var err error
	switch given.MessageName() {
	case runcType:
		o, err = readRunc(given.Value)
	case genericType:
		o, err = readGeneric(given.Value)
	default:
		err = fmt.Errorf("this type is unknown: %s and %s are known", runcType, genericType)
	}
	if err == nil {
		err = o.check()
	}
	if err != nil {
		return Options{}, fmt.Errorf("options %s: %w", given.TypeUrl, err)
	}
	return o, nil
}

// readRunc ignores task_api_address and task_api_version: they tell containerd
// which socket to talk to, and a shim that is talked to knows that.
func readRunc(value []byte) (Options, error) {
	o := &options.Options{}
	if err := proto.Unmarshal(value, o); err != nil {
		return Options{}, fmt.Errorf("decode: %w", err)
	}
	return Options{
		Binary: o.BinaryName, Root: o.Root, SystemdCgroup: o.SystemdCgroup,
		NoPivotRoot: o.NoPivotRoot, NoNewKeyring: o.NoNewKeyring, IoUID: int(o.IoUid), IoGID: int(o.IoGid),
		CriuImagePath: o.CriuImagePath, CriuWorkPath: o.CriuWorkPath, ShimCgroup: o.ShimCgroup,
	}, nil
}

// documentTypes are the values of type_url that a document may be said to have.
var documentTypes = []string{"", "io.containerd.perdure.v2.options", string(runcType)}

func readGeneric(value []byte) (Options, error) {
	o := &runtimeoptions.Options{}
	if err := proto.Unmarshal(value, o); err != nil {
		return Options{}, fmt.Errorf("decode: %w", err)
	}
	if !slices.Contains(documentTypes, o.TypeUrl) {
		return Options{}, fmt.Errorf("type_url %q is of another runtime's options: leave it out, or say %q", o.TypeUrl, documentTypes[1])
	}
	if o.ConfigPath != "" {
		return readFile(o.ConfigPath)
	}
	return parse("config_body", o.ConfigBody)
}

// check refuses what cannot be meant, whichever way it was said.
func (o *Options) check() error {
	switch {
	case strings.ContainsRune(o.Binary, '/') && !filepath.IsAbs(o.Binary):
		return fmt.Errorf("binary_name %q is neither a name nor an absolute path", o.Binary)
	case o.Root != "" && !filepath.IsAbs(o.Root):
		return fmt.Errorf("root %q is not an absolute path", o.Root)
	case o.LogPath != "" && !filepath.IsAbs(o.LogPath):
		return fmt.Errorf("log_path %q is not an absolute path", o.LogPath)
	case o.LogLevel != "" && !slices.Contains(Levels, o.LogLevel):
		return fmt.Errorf("log_level %q is none of %s", o.LogLevel, strings.Join(Levels, ", "))
	}
	return nil
}
