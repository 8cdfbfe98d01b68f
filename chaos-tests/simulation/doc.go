// Package simulation is perdure's worker in a world that is simulated.
package simulation
