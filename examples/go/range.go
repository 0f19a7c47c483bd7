package main

import (
	"encoding/json"
	"sort"
)

// Joined is a member as the leader is told of it.
type Joined struct {
	MemberID        string          `json:"member_id"`
	GroupInstanceID *string         `json:"group_instance_id"`
	Metadata        json.RawMessage `json:"metadata"`
	Topics          []string        `json:"-"` // what the metadata says
}

// assignRange is Kafka's range: each topic by itself is cut into runs of neighbours, the first members get one more. A
// topic that is not in counts is given to nobody. Static members come first, by instance id; ids are compared by bytes.
func assignRange(members []Joined, counts map[string]int) map[string]Partitions {
	sorted := append([]Joined(nil), members...)
	sort.Slice(sorted, func(i, j int) bool { return place(sorted[i]) < place(sorted[j]) })
	takers := map[string][]string{}
	assignments := map[string]Partitions{}
	for _, member := range sorted {
		assignments[member.MemberID] = Partitions{}
		for _, topic := range member.Topics {
			takers[topic] = append(takers[topic], member.MemberID)
		}
	}
	for topic, ids := range takers {
		next := 0
		for i, id := range ids {
			end := next + counts[topic]/len(ids)
			if i < counts[topic]%len(ids) {
				end++
			}
			for ; next < end; next++ {
				assignments[id][topic] = append(assignments[id][topic], next)
			}
		}
	}
	return assignments
}

func place(member Joined) string {
	if member.GroupInstanceID != nil {
		return "0" + *member.GroupInstanceID
	}
	return "1" + member.MemberID
}
