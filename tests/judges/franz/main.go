// A member of a group with franz-go, for tests/judges: it says what it reads, then commits it.
//
// Usage: franz BOOTSTRAP GROUP TOPIC STRATEGY. Lines on standard output: `assigned AT_S 0,1` when partitions come or go, and
// `record PARTITION OFFSET VALUE`. It ends in good order at SIGTERM.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type owned struct {
	mutex      sync.Mutex
	partitions map[int32]bool
}

func (o *owned) change(come bool, named map[string][]int32) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for _, numbers := range named {
		for _, number := range numbers {
			if come {
				o.partitions[number] = true
			} else {
				delete(o.partitions, number)
			}
		}
	}
	var texts []string
	for number := range o.partitions {
		texts = append(texts, fmt.Sprint(number))
	}
	sort.Strings(texts)
	fmt.Println("assigned", float64(time.Now().UnixMilli())/1000, strings.Join(texts, ","))
}

func main() {
	bootstrap, group, topic, strategy := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	balancer := map[string]kgo.GroupBalancer{
		"range":              kgo.RangeBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}[strategy]
	holds := owned{partitions: map[int32]bool{}}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ClientID("franz-go"),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.Balancers(balancer),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, named map[string][]int32) { holds.change(true, named) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, named map[string][]int32) { holds.change(false, named) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, named map[string][]int32) { holds.change(false, named) }),
	)
	if err != nil {
		log.Fatal(err)
	}
	ended, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	for ended.Err() == nil {
		waiting, cancel := context.WithTimeout(ended, 500*time.Millisecond)
		fetches := client.PollRecords(waiting, 50)
		cancel()
		fetches.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				log.Print(err)
			}
		})
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println("record", record.Partition, record.Offset, string(record.Value))
		})
		if fetches.NumRecords() > 0 {
			if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
				log.Print(err)
			}
		}
		client.AllowRebalance()
	}
	client.LeaveGroup()
	client.Close()
}
