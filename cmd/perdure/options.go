package main

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"perdure/task/options"
)

// givenOptions reads the Any of runtime options that containerd writes to stdin;
// both are nil and zero where there is none.
func givenOptions() (*anypb.Any, options.Options, error) {
	in, err := readOptions()
	if err != nil {
		return nil, options.Options{}, fmt.Errorf("read options: %w", err)
	}
	if len(in) == 0 {
		return nil, options.Options{}, nil
	}
	given := &anypb.Any{}
	if err := proto.Unmarshal(in, given); err != nil {
		return nil, options.Options{}, fmt.Errorf("stdin is not an Any with runtime options: %w", err)
	}
	o, err := options.Read(given)
	return given, o, err
}

// shimCgroup prints the shim_cgroup of the options on stdin, for the shim's start,
// which cannot read a TOML document itself.
func shimCgroup([]string) error {
	_, o, err := givenOptions()
	if err == nil && o.ShimCgroup != "" {
		_, err = fmt.Println(o.ShimCgroup)
	}
	return err
}
