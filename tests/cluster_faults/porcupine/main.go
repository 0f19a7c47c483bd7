// Judges histories of one register each: is every one of them linearizable?
//
// Standard input has a history a line, {"name": ..., "initial": 0, "operations": [...]}, where an operation is
// {"client": 0, "write": true, "value": 5, "call": 10, "return": 12}. Standard output has a verdict a line, in the same
// order: {"name": ..., "verdict": "linearizable" | "illegal" | "undecided", "operations": 120}. With a folder as the
// argument, each illegal history is drawn there, as NAME.html.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// For one history. Those of a run take milliseconds.
const patience = 20 * time.Second

type operation struct {
	Client int   `json:"client"`
	Write  bool  `json:"write"`
	Value  int64 `json:"value"`
	Call   int64 `json:"call"`
	Return int64 `json:"return"`
}

type history struct {
	Name       string      `json:"name"`
	Initial    int64       `json:"initial"`
	Operations []operation `json:"operations"`
}

type verdict struct {
	Name       string `json:"name"`
	Verdict    string `json:"verdict"`
	Operations int    `json:"operations"`
}

type input struct {
	write bool
	value int64
}

var verdicts = map[porcupine.CheckResult]string{
	porcupine.Ok:      "linearizable",
	porcupine.Illegal: "illegal",
	porcupine.Unknown: "undecided",
}

func register(initial int64) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return initial },
		Step: func(state, in, out interface{}) (bool, interface{}) {
			if asked := in.(input); asked.write {
				return true, asked.value
			}
			return out.(int64) == state.(int64), state
		},
		DescribeOperation: func(in, out interface{}) string {
			if asked := in.(input); asked.write {
				return fmt.Sprintf("commit %d", asked.value)
			}
			return fmt.Sprintf("fetch: %d", out.(int64))
		},
	}
}

func judge(given history, folder string) (verdict, error) {
	model := register(given.Initial)
	operations := make([]porcupine.Operation, 0, len(given.Operations))
	for _, one := range given.Operations {
		operations = append(operations, porcupine.Operation{
			ClientId: one.Client,
			Input:    input{one.Write, one.Value},
			Call:     one.Call,
			Output:   one.Value,
			Return:   one.Return,
		})
	}
	result := porcupine.CheckOperationsTimeout(model, operations, patience)
	if result == porcupine.Illegal && folder != "" {
		_, found := porcupine.CheckOperationsVerbose(model, operations, patience)
		name := strings.ReplaceAll(given.Name, "/", "_") + ".html"
		if err := porcupine.VisualizePath(model, found, filepath.Join(folder, name)); err != nil {
			return verdict{}, err
		}
	}
	return verdict{given.Name, verdicts[result], len(operations)}, nil
}

func run() error {
	folder := ""
	if len(os.Args) > 1 {
		folder = os.Args[1]
	}
	lines := json.NewDecoder(bufio.NewReader(os.Stdin))
	verdictsOut := json.NewEncoder(os.Stdout)
	for lines.More() {
		var given history
		if err := lines.Decode(&given); err != nil {
			return err
		}
		said, err := judge(given, folder)
		if err != nil {
			return err
		}
		if err := verdictsOut.Encode(said); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
