//! Where the feed is, and whether anything of it is missing. Pure.
//!
//! Must never count one hole twice, nor let an owner that was replaced speak for the feed.

use realtime_core::change::Position;

/// What has been seen of a project's feed.
#[derive(Debug, Clone, Default)]
pub struct Track {
    last: Option<Last>,
    /// The owner said that the feed is down, and nothing newer has come since.
    down: bool,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    epoch: u64,
    /// `None` after a loss of unknown size, until the next message: that hole is announced already.
    seq: Option<u64>,
}

/// How a message continues the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Continuity {
    /// Of an owner that was replaced, or seen before: to be ignored.
    Stale,
    /// Nothing is missing before it.
    Continues,
    /// Something is missing before it.
    Hole,
}

impl Track {
    /// A message with a position of its own: a change, or a gap, a table's change, a truncation.
    pub fn message(&mut self, position: Position) -> Continuity {
        let continuity = match self.last {
            None => Continuity::Continues,
            Some(last) if position.epoch < last.epoch => return Continuity::Stale,
            Some(last) if position.epoch > last.epoch => Continuity::Hole,
            Some(Last { seq: None, .. }) => Continuity::Continues,
            Some(Last { seq: Some(seq), .. }) if position.seq <= seq => return Continuity::Stale,
            Some(Last { seq: Some(seq), .. }) if position.seq == seq + 1 => Continuity::Continues,
            Some(_) => Continuity::Hole,
        };
        self.down = false;
        self.reach(position);
        continuity
    }

    /// The owner's beat, with the last position that it used.
    pub fn up(&mut self, last_used: Position) -> Continuity {
        let continuity = self.status(last_used);
        let was_down = self.down;
        if continuity != Continuity::Stale {
            self.down = false;
        }
        if was_down && continuity == Continuity::Continues {
            Continuity::Hole
        } else {
            continuity
        }
    }

    /// The owner's farewell, with the last position that it used.
    pub fn down(&mut self, last_used: Position) -> Continuity {
        let continuity = self.status(last_used);
        self.down |= continuity != Continuity::Stale;
        continuity
    }

    /// The bus lost messages at this place. The hole is the caller's to announce.
    pub fn lost(&mut self) {
        if let Some(last) = &mut self.last {
            last.seq = None;
        }
    }

    /// The newest owner's epoch, once any was seen.
    pub fn epoch(&self) -> Option<u64> {
        self.last.map(|last| last.epoch)
    }

    /// Whether the owner said that the feed is down.
    pub fn is_down(&self) -> bool {
        self.down
    }

    fn status(&mut self, last_used: Position) -> Continuity {
        let continuity = match self.last {
            None => Continuity::Continues,
            Some(last) if last_used.epoch < last.epoch => return Continuity::Stale,
            Some(last) if last_used.epoch > last.epoch => Continuity::Hole,
            Some(Last { seq: None, .. }) => Continuity::Continues,
            Some(Last { seq: Some(seq), .. }) if last_used.seq <= seq => return Continuity::Continues,
            Some(_) => Continuity::Hole,
        };
        self.reach(last_used);
        continuity
    }

    fn reach(&mut self, position: Position) {
        self.last = Some(Last {
            epoch: position.epoch,
            seq: Some(position.seq),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Continuity::{Continues, Hole, Stale};
    use super::*;

    fn at(epoch: u64, seq: u64) -> Position {
        Position { epoch, seq }
    }

    fn after(epoch: u64, seq: u64) -> Track {
        let mut track = Track::default();
        assert_eq!(track.up(at(epoch, seq)), Continues);
        track
    }

    #[test]
    fn consecutive_messages_continue() {
        let mut track = after(3, 7);
        assert_eq!(track.message(at(3, 8)), Continues);
        assert_eq!(track.up(at(3, 8)), Continues);
        assert_eq!(track.message(at(3, 9)), Continues);
    }

    #[test]
    fn a_missing_sequence_is_one_hole() {
        let mut track = after(3, 7);
        assert_eq!(track.message(at(3, 10)), Hole);
        assert_eq!(track.message(at(3, 11)), Continues);
        assert_eq!(track.up(at(3, 11)), Continues);
    }

    #[test]
    fn a_lost_tail_is_one_hole() {
        let mut track = after(3, 7);
        assert_eq!(track.up(at(3, 9)), Hole);
        assert_eq!(track.up(at(3, 9)), Continues);
        assert_eq!(track.message(at(3, 10)), Continues);
    }

    #[test]
    fn an_older_owner_is_not_heard() {
        let mut track = after(3, 7);
        assert_eq!(track.message(at(2, 100)), Stale);
        assert_eq!(track.up(at(2, 100)), Stale);
        assert_eq!(track.down(at(2, 100)), Stale);
        assert!(!track.is_down());
        assert_eq!(track.message(at(3, 7)), Stale);
        assert_eq!(track.message(at(3, 8)), Continues);
    }

    #[test]
    fn a_new_owner_is_one_hole_whatever_it_says_first() {
        let mut track = after(3, 7);
        assert_eq!(track.up(at(4, 0)), Hole);
        assert_eq!(track.message(at(4, 1)), Continues);
        let mut track = after(3, 7);
        assert_eq!(track.message(at(4, 1)), Hole);
        assert_eq!(track.up(at(4, 1)), Continues);
    }

    #[test]
    fn down_and_up_is_one_hole() {
        let mut track = after(3, 7);
        assert_eq!(track.down(at(3, 7)), Continues);
        assert!(track.is_down());
        assert_eq!(track.up(at(3, 7)), Hole);
        assert_eq!(track.up(at(3, 7)), Continues);
        // With the new owner's first message before its first beat.
        let mut track = after(3, 7);
        track.down(at(3, 7));
        assert_eq!(track.message(at(4, 1)), Hole);
        assert_eq!(track.up(at(4, 1)), Continues);
        // A beat of the owner that went does not bring the feed up.
        let mut track = after(3, 7);
        track.down(at(3, 7));
        assert_eq!(track.up(at(2, 9)), Stale);
        assert!(track.is_down());
    }

    #[test]
    fn a_loss_on_the_bus_is_not_a_second_hole() {
        let mut track = after(3, 7);
        track.lost();
        assert_eq!(track.message(at(3, 20)), Continues);
        assert_eq!(track.message(at(3, 22)), Hole);
        track.lost();
        assert_eq!(track.up(at(3, 30)), Continues);
        assert_eq!(track.up(at(3, 31)), Hole);
        track.lost();
        assert_eq!(track.message(at(4, 1)), Hole);
    }
}
