// Reads, writes and follows as the member of examples/go does, in the place of its main.go: a question as JSON in each
// line, an answer as JSON in each.
package main

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
)

func main() {
	questions, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var asked struct {
			What        string
			Value       json.RawMessage
			Partitions  Partitions
			From, Named string
		}
		err := questions.Decode(&asked)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		var said any
		switch asked.What {
		case "subscription":
			var told Subscription
			told, err = readSubscription(asked.Value)
			if told.OwnedPartitions == nil {
				told.OwnedPartitions = Partitions{}
			}
			if told.Topics == nil {
				told.Topics = []string{}
			}
			said = told
		case "assignment":
			said, err = readAssignment(asked.Value)
		case "write":
			said = writeAssignment(asked.Value, asked.Partitions)
		case "destination":
			if url := destination(asked.From, asked.Named); url != "" {
				said = url
			}
		}
		answer := map[string]any{"said": said}
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		if err := answers.Encode(answer); err != nil {
			log.Fatal(err)
		}
	}
}
