package runtime

import (
	"context"
	"encoding/json"
	"fmt"

	runc "github.com/containerd/go-runc"
)

func features(ctx context.Context, c *runc.Runc) ([]byte, error) {
	f, err := c.Features(ctx)
	if err != nil {
		return nil, fmt.Errorf("features of %s: %w", c.Command, err)
	}
	return json.Marshal(f)
}
