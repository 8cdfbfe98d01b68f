package harness

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// Seed returns the seed of a random test: PERDURE_SEED, else another each time.
// It is printed, as it repeats the test's choices.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("PERDURE_SEED"); text != "" {
		given, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("PERDURE_SEED: %v", err)
		}
		seed = given
	}
	t.Logf("PERDURE_SEED=%d", seed)
	return seed
}

// Random returns one of several independent streams of choices of a seed.
func Random(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// Number returns the whole number in an environment variable, or otherwise.
func Number(t testing.TB, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
