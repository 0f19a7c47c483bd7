// A program with a member in it. Where it counts up, yours reads the next records of each partition and works on them.
//
//	go run . -coordinator http://127.0.0.1:8000 -group clicks -topics clicks
//
// Of a service with several nodes, give all URLs with commas between: -coordinator http://127.0.0.1:8001,http://127.0.0.1:8002.
// Prints one JSON line for each change of ownership, and leaves on SIGTERM and SIGINT. The token comes from
// RALLYPOINT_TOKEN, since others can see a command line.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	recordTime       = 100 * time.Millisecond // how long the pretended work on one record of each partition takes
	recordsPerCommit = 10
	commitTime       = 12 * time.Second // for a commit with its repeats, so that the program ends in any case
)

// program is where the records would be read.
type program struct {
	mutex      sync.Mutex
	generation int     // the one in which it got what it has
	positions  Offsets // the next offset to read of each partition that it has
}

func (p *program) Assigned(member *Member, partitions Partitions, offsets Offsets) {
	positions := Offsets{}
	for topic, numbers := range partitions {
		positions[topic] = map[int]int64{}
		for _, number := range numbers {
			positions[topic][number] = offsets[topic][number] // 0 where nothing was committed
		}
	}
	tell(member, "assigned", partitions, positions)
	_, generation := member.Identity()
	p.replace(generation, positions)
}

func (p *program) Revoked(member *Member, partitions Partitions) {
	generation, reached := p.replace(-1, nil)
	commit(member, generation, reached)
	tell(member, "revoked", partitions, reached)
}

func (p *program) Lost(member *Member, partitions Partitions) {
	p.replace(-1, nil)
	tell(member, "lost", partitions, nil)
}

// replace gives what was there before.
func (p *program) replace(generation int, positions Offsets) (int, Offsets) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	generationBefore, before := p.generation, p.positions
	p.generation, p.positions = generation, positions
	return generationBefore, before
}

// work goes one record further in each partition, and gives what was reached in which generation.
func (p *program) work() (int, Offsets) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	reached := Offsets{}
	for topic, numbers := range p.positions {
		reached[topic] = map[int]int64{}
		for number := range numbers {
			numbers[number]++
			reached[topic][number] = numbers[number]
		}
	}
	return p.generation, reached
}

// commit: what cannot be committed now is read again by whoever owns it next. That is what "at least once" means.
func commit(member *Member, generation int, reached Offsets) {
	if len(reached) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitTime)
	defer cancel()
	if err := member.Commit(ctx, generation, reached); err != nil {
		log.Printf("not committed: %v", err)
		if !isRetriable(err) {
			os.Exit(1)
		}
	}
}

func tell(member *Member, event string, partitions Partitions, offsets Offsets) {
	id, generation := member.Identity()
	line := map[string]any{"event": event, "member_id": id, "generation_id": generation}
	if partitions != nil {
		line["partitions"] = partitions
	}
	if offsets != nil {
		line["offsets"] = offsets
	}
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		log.Fatal(err)
	}
}

func main() {
	options := Options{RebalanceTimeout: time.Minute}
	options.Token = os.Getenv("RALLYPOINT_TOKEN")
	flag.StringVar(&options.Coordinator, "coordinator", "http://127.0.0.1:8000", "URL of any node, or of several with commas between")
	flag.StringVar(&options.GroupID, "group", "", "the group")
	flag.StringVar(&options.ClientID, "client-id", "go", "the start of the member id")
	flag.DurationVar(&options.SessionTimeout, "session-timeout", 45*time.Second, "without news the group waits so long")
	flag.StringVar(&options.CA, "ca", "", "file of the authorities to trust over https; the system's if it is left out")
	flag.StringVar(&options.Certificate, "cert", "", "file of the certificate to show, with -key")
	flag.StringVar(&options.Key, "key", "", "file of the certificate's key")
	topics := flag.String("topics", "", "the topics, with commas between")
	flag.Parse()
	if options.GroupID == "" || *topics == "" {
		flag.Usage()
		os.Exit(2)
	}
	options.Topics = strings.Split(*topics, ",")

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	records := &program{}
	member := NewMember(options, records)
	go func() {
		for count := 1; ; count++ {
			time.Sleep(recordTime)
			if generation, reached := records.work(); count%recordsPerCommit == 0 {
				commit(member, generation, reached)
			}
		}
	}()
	if err := member.Run(ctx); err != nil {
		log.Fatal(err)
	}
	tell(member, "left", nil, nil)
}
