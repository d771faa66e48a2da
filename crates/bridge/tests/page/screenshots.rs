//! Pictures of the views, for the book.
